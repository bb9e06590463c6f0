"""What the all-reduces of assignment 2 may send, read from the trace of one call.

`members` are the global ranks of the group in group order; limits are bytes that a rank sends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from grader.checks.a1_cases import Spec
from grader.checks.a1_volume import WIDENED
from grader.checks.causes import NOT_IN_MESSAGES, Bench, Case
from grader.checks.framework import CheckFailed
from grader.fabric.cluster import Cluster, LinkSpec, two_level, uniform
from grader.fabric.presets import one_card
from grader.fabric.trace import Trace

#: Runs whose traffic is counted: world, sub-group, tensor. Their values must be right, too.
COUNTED: tuple[tuple[int, tuple[int, ...] | None, Spec], ...] = (
    (4, None, (torch.float32, (1001,), False)),
    (3, None, (torch.bfloat16, (100,), False)),
    (2, None, (torch.float32, (10,), False)),
    (8, None, (torch.float32, (5,), False)),
    (6, (5, 0, 3, 2), (torch.float32, (64,), False)),
    (1, None, (torch.float32, (6,), False)),
)


class Run(NamedTuple):
    """One counted call: its group (global ranks), elements and bytes of its tensor, its trace."""

    members: list[int]
    length: int
    itemsize: int
    trace: Trace

    @property
    def size(self) -> int:
        """Ranks of the group, n."""
        return len(self.members)

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return self.length * self.itemsize

    @property
    def optimum(self) -> float:
        """Bytes that each rank must send in an all-reduce, on average: 2 (n - 1) / n of it."""
        return 2 * (self.size - 1) / self.size * self.nbytes

    @property
    def most_sent(self) -> int:
        """Bytes sent by the rank that sends most."""
        return max(self.trace.bytes_sent)


def count(runner: Bench, make: Callable[..., Case], judge: Callable[[Run], None]) -> None:
    """Judge a run for each of `COUNTED`; a failure is reported with the case it belongs to.

    make(world, ranks, spec, op) gives the case. A hang on NCCL is noted as a warning.
    """
    for number, (world, ranks, spec) in enumerate(COUNTED):
        case = make(world, ranks, spec, "SUM")
        trace = runner.run([case], nccl_hint=number == 0).trace
        run = Run(case.members, spec[1][0], spec[0].itemsize, trace)
        about(case, lambda run=run: judge(run))  # type: ignore[misc]


def about(case: Case, judge: Callable[[], None]) -> None:
    """Judge, and put the case before the message of a failure."""
    try:
        judge()
    except CheckFailed as failure:
        failure.message = f"{case.label}: {failure.message}"
        raise


def around_the_ring(trace: Trace, members: Sequence[int]) -> None:
    """Every rank sends to the next of its group only, and so receives from the previous one."""
    size = len(members)
    hubs = (h for h in members if all(trace.peers[r] <= {h} for r in members if r != h))
    hub = next(hubs, None) if size > 2 else None
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
        elif hub is not None:
            cause = f"everything goes through one rank, {hub}: that is a parameter server"
        elif list(members) != sorted(members) and len(others) == 1:
            cause = "the neighbours are those by global rank, not by the rank in the group"
        ring = " → ".join(map(str, [*members, members[0]]))
        raise CheckFailed(
            f"rank {rank} sent to ranks {sorted(trace.peers[rank])}, expected to rank {following} "
            f"only, which follows it in the ring {ring}",
            cause=cause,
        )


def at_most(run: Run, limit: int, rule: str, whole: int, optimum: float) -> None:
    """No rank sends more than `limit` bytes, and all together no less than they must.

    rule: where the limit comes from, in words. whole: bytes of the whole vector. optimum: bytes
    per rank that no algorithm can do without, on average.
    """
    members = run.members
    sent = [run.trace.bytes_sent[rank] for rank in members]
    if sum(sent) < math.floor(optimum * run.size):
        raise CheckFailed(
            f"{run.size} ranks sent {sum(sent)} bytes in all, and no algorithm can do with less "
            f"than {math.floor(optimum * run.size)}",
            cause=NOT_IN_MESSAGES,
        )
    if max(sent) <= limit:
        return
    busiest = sent.index(max(sent))
    idle = sum(each < max(sent) / 2 for each in sent)
    if run.itemsize == 2 and 1.9 * limit < max(sent) <= 2 * limit:
        cause = WIDENED
    elif run.size > 2 and idle == run.size - 1:
        cause = f"everything passes through rank {members[busiest]}, as through a server"
    elif whole and all(each % whole == 0 for each in sent):
        cause = "whole vectors travel where chunks would do"
    else:
        cause = "something travels more than once, or to ranks that do not need it"
    raise CheckFailed(
        f"rank {members[busiest]} sent {max(sent)} bytes, expected at most {limit} ({rule}; no "
        f"algorithm can do with less than {optimum:.0f} per rank, on average)",
        cause=cause,
    )


def rounds_at_most(trace: Trace, most: int, rule: str) -> None:
    """No message is deeper than `most`, and there are messages unless it is 0."""
    if most and not trace.rounds:
        raise CheckFailed(
            f"no message was sent, expected at most {most} rounds ({rule})", cause=NOT_IN_MESSAGES
        )
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


def reduction_is_hidden(
    trace: Trace, ranks: int, chunk_bytes: int, metrics: dict[str, Any]
) -> None:
    """Virtual time of a ring all-reduce is at most 1.25 × the larger of its two kinds of work.

    trace: with computation recorded. The machine is one on which to add a byte takes as long as to
    send one. metrics: gets the ratio.
    """
    bandwidth = 1e9
    # Adding moves three bytes for each that it adds: two are read, one is written.
    machine = uniform(ranks, 1e-8, bandwidth, flops=math.inf, memory_bandwidth=3 * bandwidth)
    reductions = (ranks - 1) * chunk_bytes / bandwidth
    transfers = 2 * reductions
    took, allowed = trace.on(machine).makespan, 1.25 * transfers
    metrics.setdefault("virtual_time_over_larger", round(took / transfers, 3))
    if took <= allowed:
        return
    moved = max(
        sum(event.nbytes for event in events if event.region) for events in trace.record.events
    )
    needed = 3 * (ranks - 1) * chunk_bytes
    if moved > 1.2 * needed:
        cause = (
            f"a rank moves {moved} bytes in its memory, where reducing takes {needed}: copies, or "
            f"results that are made first and stored afterwards"
        )
    elif took > 0.95 * (transfers + reductions):
        cause = "nothing overlaps: while a segment is reduced, no other is on its way"
    else:
        cause = "the wire idles: post the next segment before the last one is reduced"
    raise CheckFailed(
        f"{took * 1e6:.1f} µs of virtual time, expected at most {allowed * 1e6:.1f} = 1.25 × the "
        f"larger of {transfers * 1e6:.1f} for all transfers and {reductions * 1e6:.1f} for all "
        f"reductions",
        cause=cause,
    )


def faster_than_a_flat_ring(
    trace: Trace, k: int, g: int, nbytes: int, metrics: dict[str, Any], preset: str = ""
) -> None:
    """On k nodes of g ranks with slow links between, at most 0.9 × the time of one ring over all.

    nbytes: of the vector. metrics: gets how many times faster it was. preset: name of a cluster
    whose nodes share one card each, instead of a machine of round numbers.
    """
    if preset:
        machine = one_card(Cluster.preset(f"{preset}*{k}", k * g))
        machine = replace(machine, flops=math.inf, memory_bandwidth=math.inf)
        inner, outer = machine.intra, machine.inter
    else:
        inner, outer = LinkSpec(2e-6, 200e9), LinkSpec(10e-6, 3e8)
        machine = two_level(k, g, inner, outer, flops=math.inf, memory_bandwidth=math.inf)
    took, flat = trace.on(machine).makespan, ring_seconds(k * g, nbytes, outer)
    formula = ring_seconds(g, nbytes, inner) + ring_seconds(k, nbytes / g, outer)
    metrics.setdefault("flat_ring_over_hierarchical", round(flat / took, 2))
    if took > 0.9 * flat:
        raise CheckFailed(
            f"{took * 1e6:.0f} µs of virtual time, expected at most {0.9 * flat * 1e6:.0f}: a flat "
            f"ring takes {flat * 1e6:.0f}, the two-level formula gives {formula * 1e6:.0f}",
            cause="as much crosses between the nodes, or as often, as in a flat ring",
        )


def ring_seconds(ranks: int, nbytes: float, link: LinkSpec) -> float:
    """α-β time of a ring all-reduce whose slowest link is `link`."""
    return 2 * (ranks - 1) * (link.latency + nbytes / ranks / link.bandwidth)
