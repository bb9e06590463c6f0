"""What the all-reduces of assignment 2 may send, read from the trace of one call.

`members` are the global ranks of the group in group order; limits are bytes that a rank sends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from grader.checks.a1_volume import WIDENED
from grader.checks.framework import CheckFailed
from grader.fabric.cluster import LinkSpec
from grader.fabric.trace import Trace


def around_the_ring(trace: Trace, members: Sequence[int]) -> None:
    """Every rank sends to the next of its group only, and so receives from the previous one."""
    size = len(members)
    for place, rank in enumerate(members):
        following, previous = members[(place + 1) % size], members[place - 1]
        others = trace.peers[rank] - {following}
        if not others:
            continue
        cause = "the chunks do not travel around a ring"
        if rank in others:
            cause = "a rank sends to itself"
        elif others == {previous} and following in trace.peers[rank]:
            cause = "chunks travel around the ring in both directions"
        elif others == {previous}:
            cause = "the ring runs backwards: previous and next are swapped"
        elif all(peers <= {min(others)} for r, peers in enumerate(trace.peers) if r != min(others)):
            cause = f"everything goes through one rank, {min(others)}: that is a parameter server"
        elif list(members) != sorted(members) and len(others) == 1:
            cause = "the neighbours are those by global rank, not by the rank in the group"
        ring = " → ".join(map(str, [*members, members[0]]))
        raise CheckFailed(
            f"rank {rank} sent to ranks {sorted(trace.peers[rank])}, expected to rank {following} "
            f"only, which follows it in the ring {ring}",
            cause=cause,
        )


def at_most(
    trace: Trace, members: Sequence[int], limit: int, rule: str, vector: int, itemsize: int
) -> None:
    """No rank sends more than `limit` bytes. rule: where the limit comes from, in words.

    vector: bytes of what is reduced, of which an optimal all-reduce sends 2 (n - 1) / n per rank;
    itemsize: bytes of an element.
    """
    sent = [trace.bytes_sent[rank] for rank in members]
    if max(sent) <= limit:
        return
    size = len(members)
    busiest = sent.index(max(sent))
    idle = sum(each < max(sent) / 2 for each in sent)
    if itemsize == 2 and 1.9 * limit < max(sent) <= 2 * limit:
        cause = WIDENED
    elif size > 2 and idle == size - 1:
        cause = f"everything passes through rank {members[busiest]}, as through a server"
    elif vector and all(each % vector == 0 for each in sent):
        cause = "whole vectors travel where chunks would do"
    else:
        cause = "something travels more than once, or to ranks that do not need it"
    optimum = 2 * (size - 1) / size * vector
    raise CheckFailed(
        f"rank {members[busiest]} sent {max(sent)} bytes, expected at most {limit} ({rule}; "
        f"an all-reduce cannot do with less than {optimum:.0f} per rank on average)",
        cause=cause,
    )


def rounds_at_most(trace: Trace, most: int, rule: str) -> None:
    """No message is deeper than `most`."""
    if trace.rounds > most:
        raise CheckFailed(
            f"{trace.rounds} rounds, expected at most {most} ({rule})",
            cause="ranks wait for messages before they send what does not depend on them, or the "
            "chunks take more steps than they need",
        )


def node_traffic(trace: Trace, nodes: Sequence[Sequence[int]]) -> list[int]:
    """Bytes that each global rank sends to ranks of other nodes."""
    node_of = {rank: number for number, ranks in enumerate(nodes) for rank in ranks}
    sent = [0] * len(node_of)
    for (src, dst), nbytes in trace.traffic.items():
        if node_of[src] != node_of[dst]:
            sent[src] += nbytes
    return sent


def between_nodes_at_most(sent: Sequence[int], length: int, k: int, g: int, itemsize: int) -> None:
    """No rank sends more than 2 (k - 1) ⌈⌈N / g⌉ / k⌉ elements to other nodes.

    sent: `node_traffic`. length: N, elements of `itemsize` bytes; k nodes of g ranks.
    """
    elements = 2 * (k - 1) * math.ceil(math.ceil(length / g) / k)
    limit = elements * itemsize
    if max(sent) <= limit:
        return
    cause = "a rank sends more than its share, 1/g of the vector, to other nodes"
    if sent.count(0):
        cause = "one rank speaks for its node, and the network cards of the others idle"
    elif itemsize == 2 and 1.9 * limit < max(sent) <= 2 * limit:
        cause = WIDENED
    raise CheckFailed(
        f"rank {sent.index(max(sent))} sent {max(sent)} bytes to other nodes, expected at most "
        f"{limit} (2 (k - 1) ⌈⌈N / g⌉ / k⌉ = {elements} elements of {itemsize} bytes; k = {k} "
        f"nodes of g = {g} ranks)",
        cause=cause,
    )


def all_take_part(sent: Sequence[int]) -> None:
    """Every rank sends something to other nodes. sent: `node_traffic`."""
    idle = [rank for rank, nbytes in enumerate(sent) if nbytes == 0]
    if idle:
        raise CheckFailed(
            f"ranks {idle} sent nothing to other nodes, expected about "
            f"{sum(sent) // len(sent)} bytes from each of {len(sent)} ranks",
            cause="one rank speaks for its node, and the network cards of the others idle",
        )


def ring_seconds(ranks: int, nbytes: float, link: LinkSpec) -> float:
    """α-β time of a ring all-reduce whose slowest link is `link`."""
    return 2 * (ranks - 1) * (link.latency + nbytes / ranks / link.bandwidth)
