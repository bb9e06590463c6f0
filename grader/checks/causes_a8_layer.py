"""From a wrong mixture-of-experts layer to its likely cause, in one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from grader.checks.a8_balance import kept
from grader.checks.a8_cases import Exchange
from grader.checks.a8_moe import MoeCase, Part, one_device
from grader.checks.causes_a8 import CUT_OFF as CUT_OFF
from grader.checks.causes_a8 import in_sub_groups as in_sub_groups
from grader.checks.causes_a8 import of_volume as exchanged_volume
from grader.fabric.record import Operation

Suspects = list[tuple[torch.Tensor, str]]

NO_ROUTER = "the weights' gradient is missing: the router would never learn which experts are good"
NO_EXPERT = (
    "an expert without tokens is left out, or a copy was used: call every expert, so that its "
    "gradient is zeros"
)


DROPPED = "tokens are dropped at a capacity: the layer has none, the router says so with -1"


def of_output(case: MoeCase, parts: Sequence[Part], step: int, place: int) -> Suspects:
    """Wrong outputs of one place (of the first step, whose parameters are known)."""
    right = parts[place].output
    found: Suspects = [
        (torch.zeros_like(right), "the output is all zeros"),
        (right * len(case.members), "the output is counted once for each rank"),
        (right + case.xs[step][place], "the input is added: the residual is not the layer's"),
    ]
    if step:
        return found
    plain = one_device(case, case.experts, case.router, step, place, weighted=False)
    found.append((plain.output, "the experts' results are added up without their weights"))
    own = range(place * case.per_rank, (place + 1) * case.per_rank)
    others = [
        {n: v if e in own else torch.zeros_like(v) for n, v in state.items()}
        for e, state in enumerate(case.experts)
    ]
    alone = one_device(case, others, case.router, step, place)
    found.append((alone.output, "only this rank's experts count: other ranks' tokens do not come"))
    if case.dropped is None:
        for factor in (1.0, 1.25):
            full = ~kept(parts[place].indices, len(case.experts), factor)
            dropped = [[full if p == place else torch.zeros_like(full) for p in range(len(parts))]]
            short = one_device(
                replace(case, dropped=dropped), case.experts, case.router, step, place
            )
            found.append((short.output, DROPPED))
    return found


def of_expert(case: MoeCase, parts: Sequence[Part], number: int, name: str, place: int) -> Suspects:
    """Wrong gradients of one parameter of an expert."""
    size = len(parts)
    each = torch.stack([part.experts[number][name] for part in parts])
    right = each.sum(0)
    found: Suspects = [
        (
            right * size,
            f"the gradient is {size} times too large: expert gradients grow with the EP size. An "
            "expert lives on one rank and has seen all its tokens: nothing is to be summed over "
            "the group",
        ),
        (right / size, "the gradient is averaged over the EP group: an expert lives on one rank"),
        (each[place], "only this rank's own tokens count: others' gradients do not arrive"),
        (torch.zeros_like(right), "no gradient arrives: it is all zeros"),
    ]
    local = number % case.per_rank
    mixed = torch.stack(
        [
            part.experts[other * case.per_rank + local][name]
            for part in parts
            for other in range(size)
        ]
    ).sum(0)
    why = "gradients of different experts are summed over the group: each rank has its own"
    return [*found, (mixed, why), (mixed / size, why)]


def of_router(parts: Sequence[Part], place: int) -> Suspects:
    """Wrong gradients of the router on one place."""
    right = parts[place].router
    summed = torch.stack([part.router for part in parts]).sum(0)
    already = (
        "the gradient is of all ranks' tokens already: data parallelism, which sums it like that "
        "of every replicated parameter, would count it once for each rank"
    )
    return [
        (summed, already),
        (summed / len(parts), already),
        (right * len(parts), "the gradient is counted once for each rank"),
        (torch.zeros_like(right), NO_ROUTER),
    ]


def of_input(case: MoeCase, parts: Sequence[Part], step: int, place: int) -> Suspects:
    """Wrong gradients of the input."""
    right = parts[place].x
    found: Suspects = [
        (right * len(parts), "the gradient is counted once for each rank"),
        (right / len(parts), "the gradient is averaged over the ranks"),
        (torch.zeros_like(right), "no gradient arrives: it is all zeros"),
    ]
    if step:
        return found
    for cut, why in (
        ("router", "the way back through the router is cut: the weights depend on the input, too"),
        ("experts", "the way back through the experts is cut: only the router's part arrives"),
    ):
        found.append((one_device(case, case.experts, case.router, step, place, cut=cut).x, why))
    return found


def of_volume(
    routes: Exchange, operations: Sequence[Operation], place: int, rows: float, wanted: int
) -> str | None:
    """Why other rows than needed were sent."""
    gathered = [op for op in operations if op.kind in ("all_gather", "broadcast")]
    if gathered and rows > 0:
        return (
            "experts (or all tokens) travel to all ranks: send each token only where one of its "
            "experts is"
        )
    return exchanged_volume(routes, operations, place, rows, wanted)
