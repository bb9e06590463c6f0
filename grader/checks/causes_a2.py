"""Likely causes of what goes wrong in assignment 2: around the ring, and between nodes."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from grader.fabric.trace import Trace


def unreduced_elements(
    got: torch.Tensor, expected: torch.Tensor, before: torch.Tensor, ranks: int
) -> str | None:
    """Elements that came back as they went in, while others were reduced."""
    if got.shape != before.shape or got.dtype != before.dtype:
        return None
    kept = (got == before).flatten() & (expected != before.to(expected.dtype)).flatten()
    count, length = int(kept.sum()), kept.numel()
    if count in (0, length):
        return None
    if count < ranks and bool(kept[-count:].all()) and length % ranks:
        return (
            f"the last {count} of {length} elements were left out: {ranks} chunks of "
            f"⌊{length} / {ranks}⌋ do not cover the vector"
        )
    return f"{count} of {length} elements came back as they went in"


def ring_peers(trace: Trace, members: Sequence[int]) -> tuple[str, str] | None:
    """(what is wrong, likely cause) unless every rank sends to the next of the group only."""
    size = len(members)
    for place, rank in enumerate(members):
        following, previous = members[(place + 1) % size], members[place - 1]
        others = trace.peers[rank] - {following}
        if not others:
            continue
        wrong = (
            f"rank {rank} sent to {_ranks(others)}, expected to rank {following} only, which "
            f"follows it in the ring {_ring(members)}"
        )
        if rank in others:
            return wrong, "a rank sends to itself"
        if others == {previous}:
            both = following in trace.peers[rank]
            return wrong, (
                "chunks travel around the ring in both directions"
                if both
                else "the ring runs backwards: previous and next are swapped"
            )
        if list(members) != sorted(members) and len(others) == 1:
            return wrong, "the neighbours are those by global rank, not by the rank in the group"
        return wrong, "the chunks do not travel around a ring"
    return None


def too_many_bytes(
    sent: Sequence[int], allowed: Sequence[int], vector_bytes: int, itemsize: int
) -> str:
    """Why ranks sent more than they may: by rank, in group order."""
    if itemsize == 2 and all(s <= 2 * a for s, a in zip(sent, allowed, strict=True)):
        if max(sent) > 1.9 * max(allowed):
            return "16-bit values travel as 32-bit ones"
    busiest = max(sent)
    if len(sent) > 2 and sum(each < busiest / 2 for each in sent) >= len(sent) - 1:
        return f"everything passes through one rank (number {sent.index(busiest)} of the group)"
    if vector_bytes and all(each and each % vector_bytes == 0 for each in sent):
        return "whole vectors travel where chunks would do"
    return "something travels twice, or is sent to ranks that do not need it"


def node_traffic(trace: Trace, nodes: Sequence[Sequence[int]]) -> list[int]:
    """Bytes that each global rank sends to ranks of other nodes."""
    node_of = {rank: number for number, ranks in enumerate(nodes) for rank in ranks}
    sent = [0] * len(node_of)
    for (src, dst), nbytes in trace.traffic.items():
        if node_of[src] != node_of[dst]:
            sent[src] += nbytes
    return sent


def _ranks(ranks: set[int]) -> str:
    numbers = sorted(ranks)
    return f"rank{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def _ring(members: Sequence[int]) -> str:
    return " → ".join(map(str, [*members, members[0]]))
