"""Whether products and attentions came out right, and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from grader.checks import causes_a5 as causes
from grader.checks.a4_cases import share
from grader.checks.a4_judges import expect
from grader.checks.a5_cases import CallCase, cut, whole_attention
from grader.checks.causes_a4 import IN_PLACE
from grader.checks.framework import CheckFailed
from grader.fabric.trace import Trace

#: Ring attention in float64: twice the roundings that give 1e-10.
EXACT = 1e-10


def expect_kept(case: CallCase, answer: Any, place: int, names: Sequence[str], where: str) -> None:
    """Arguments are what they were."""
    for name, before, after in zip(names, case.tensors[place], answer["tensors"], strict=True):
        if not torch.equal(before, after):
            raise CheckFailed(f"{where}: `{name}` was changed", cause=IN_PLACE)


def judge_product(case: CallCase, answers: Sequence[Any]) -> None:
    """Output and gradients of a product."""
    size = len(case.members)
    a, b, g = (case.facts[name] for name in ("a", "b", "g"))
    cut_a, cut_b, cut_g = case.facts["cuts"]
    whole = a @ b
    for place, rank in enumerate(case.members):
        where = f"{case.label}: rank {rank}"
        mine_a, mine_b = case.tensors[place]
        suspects = [
            (whole, "the whole product came back, not this rank's share"),
            *(
                (share(whole, cut_g, other, size), f"the share of group rank {other}")
                for other in range(size)
                if other != place
            ),
        ]
        if cut_g == 0:
            own = mine_a @ mine_b
            why = "the rank's own part of the sum only: nothing was added up"
            suspects.append((share(own, 0, place, size), why))
            averaged = share(whole, 0, place, size) / size
            suspects.append((averaged, "averaged over the ranks, where a sum is meant"))
        suspects += _misplaced(whole, place, size, cut_g)
        answer = answers[place]
        expect(
            answer["outputs"][0],
            share(whole, cut_g, place, size),
            f"{where}, result",
            partial(list, suspects),
        )
        expect_kept(case, answer, place, ("a", "b"), where)
        if case.gradients is None:
            continue
        mine = case.gradients[place]
        gradients = {
            "a": share(g @ b.mT, cut_a, place, size),
            "b": share(a.mT @ g, cut_b, place, size),
        }
        for number, (name, gradient) in enumerate(gradients.items()):
            got = answer["gradients"][number]
            if got is None:
                raise CheckFailed(
                    f"{where}: `{name}` got no gradient",
                    cause="the result is cut off from the graph: write an autograd.Function",
                )
            suspects = [(gradient / size, "the gradient is averaged over the ranks")]
            if cut_g == 1 and name == "a":
                part = share(mine @ mine_b.mT, 0, place, size)
                suspects.append(
                    (part, "made of this rank's columns only: the ranks' parts must be summed")
                )
            if name == "b" or cut_g == 0:
                part = torch.zeros_like(gradient)
                rows = slice(place * len(mine), (place + 1) * len(mine))
                if cut_g == 0 and name == "a":
                    part[rows] = mine @ mine_b.mT
                elif cut_g == 0:
                    part = mine_a[rows].mT @ mine
                else:
                    rows = slice(place * len(mine_a), (place + 1) * len(mine_a))
                    part = mine_a.mT @ mine[rows]
                suspects.append(
                    (part, "made of this rank's rows only: the others' must be gathered")
                )
            expect(got, gradient, f"{where}, gradient of {name}", partial(list, suspects))


def _misplaced(
    whole: torch.Tensor, place: int, size: int, cut: int
) -> list[tuple[torch.Tensor, str]]:
    """Right numbers in wrong rows."""
    if cut == 1:
        own = share(whole, 1, place, size)
        blocks = [share(own, 0, (place - step) % size, size) for step in range(size)]
        return [(torch.cat(blocks), "blocks stand in the order of their arrival, not of the ranks")]
    found = []
    for chunks in (4, 2, 3):
        parts = whole.tensor_split(chunks)
        if all(len(part) % size == 0 for part in parts):
            rows = torch.cat([share(part, 0, place, size) for part in parts])
            why = "a chunk is a run of neighbouring rows: it must hold rows of every rank's share"
            found.append((rows, why))
    return found


def judge_attention(case: CallCase, answers: Sequence[Any]) -> None:
    """Output, and gradients of q, k and v, to 1e-10."""
    whole = whole_attention(case)
    size, layout = len(case.members), case.facts["layout"]
    for place, rank in enumerate(case.members):
        where, answer = f"{case.label}: rank {rank}", answers[place]
        _exact(
            answer["outputs"][0], cut(whole.out, place, size, layout), f"{where}, output",
            partial(causes.attention_suspects, case, place),
        )  # fmt: skip
        expect_kept(case, answer, place, ("q", "k", "v"), where)
        if case.gradients is None:
            continue
        for number, (name, gradient) in enumerate(zip("qkv", whole.gradients, strict=True)):
            if answer["gradients"][number] is None:
                raise CheckFailed(
                    f"{where}: `{name}` got no gradient", cause="the result is cut off the graph"
                )
            _exact(
                answer["gradients"][number], cut(gradient, place, size, layout),
                f"{where}, gradient of {name}",
                partial(causes.gradient_suspects, case, number, gradient, place),
            )  # fmt: skip


def _exact(
    got: Any, wanted: torch.Tensor, where: str, suspects: Callable[[], causes.Suspects]
) -> None:
    largest = float(wanted.abs().max().clamp(min=1))
    operations = int(EXACT / largest / torch.finfo(torch.float64).eps)
    expect(got, wanted, where, suspects, operations=operations)


# Work ---------------------------------------------------------------------------------------------


def flops(trace: Trace, rank: int, begin: int, end: int) -> int:
    """FLOPs that a rank computed between two marks."""
    return sum(
        event.flops
        for event in trace.record.events[rank][begin:end]
        if event.kind == "compute" and event.region
    )


def block_pairs(size: int, length: int, causal: bool, layout: str) -> list[int]:
    """Pairs of query and key in the blocks that are not wholly hidden, by group rank.

    Blocks are those of the layout: a share with a share, in zigzag half of one.
    """
    square = length * length
    if not causal:
        return [size * square] * size
    if layout == "zigzag":
        return [square + (size - 1) * square // 2] * size
    return [(place + 1) * square for place in range(size)]
