"""Likely causes of wrong values in rings, from the chunks that they are made of."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from grader.checks.a1_cases import wide


def unreduced_elements(
    got: torch.Tensor, expected: torch.Tensor, before: torch.Tensor, ranks: int
) -> str | None:
    """The cause when some elements came back as they went in, while others were reduced."""
    if got.shape != before.shape or got.dtype != before.dtype:
        return None
    kept = (got == before).flatten() & (expected != before.to(expected.dtype)).flatten()
    count, length = int(kept.sum()), kept.numel()
    if count in (0, length):
        return None
    if count < ranks and bool(kept[-count:].all()) and length % ranks:
        return (
            f"the last {count} of {length} elements were left out: where a division leaves a "
            f"remainder, the parts do not cover the vector"
        )
    return f"{count} of {length} elements came back as they went in"


def wrong_chunks(
    got: torch.Tensor, total: torch.Tensor, inputs: Sequence[torch.Tensor]
) -> str | None:
    """The cause when some n-ths of the vector are right, and the others another n-th or partial."""
    size, length = len(inputs), total.numel()
    if length < size or length % size or got.shape != total.shape:
        return None
    theirs, right = wide(got).flatten().chunk(size), total.flatten().chunk(size)
    parts = torch.stack([wide(each).flatten() for each in inputs])
    if any(_close(wide(got).flatten(), part) for part in parts):
        return None
    found = set()
    for place in range(size):
        if _close(theirs[place], right[place]):
            continue
        columns = slice(place * (length // size), (place + 1) * (length // size))
        runs = [
            torch.stack([parts[(first + k) % size, columns] for k in range(count)]).sum(0)
            for first in range(size)
            for count in range(1, size)
        ]
        if any(_close(theirs[place], each) for each in right):
            found.add("a chunk that is finished lies in the place of another chunk")
        elif any(_close(theirs[place], run) for run in runs):
            found.add(
                "some chunks are sums over a part of the ranks only: what the all-gather half "
                "passes on is not the chunk that was finished"
            )
        else:
            return None
    return found.pop() if len(found) == 1 else None


def _close(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.allclose(one, other, rtol=1e-3, atol=1e-3)
