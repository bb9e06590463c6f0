"""From a wrong mixture-of-experts layer to its likely cause, in one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from grader.checks.a8_balance import kept
from grader.checks.a8_cases import Exchange
from grader.checks.a8_moe import MoeCase, Part, one_device
from grader.checks.causes_a8 import CUT_OFF as CUT_OFF
from grader.checks.causes_a8 import by_group as by_group
from grader.checks.causes_a8 import of_volume as exchanged_volume
from grader.fabric.record import Operation

Suspects = list[tuple[torch.Tensor, str]]

NO_ROUTER = (
    "the router's weights get no gradient, so it can never learn which experts are good: they are "
    "detached in the layer, or combine gives them none (the checks of a8.combine tell which)"
)
IDLE = (
    "an expert that got no tokens was not called: call every expert, also with no rows, so that "
    "its gradient is zeros and not None"
)
COPIED = (
    "a copy of the expert was called, and the gradient went to the copy: use the modules that are "
    "given, themselves"
)
DETACHED = (
    "the expert got tokens, but no gradient came back to it: its result is detached, or it was "
    "called under no_grad"
)
DROPPED = (
    "tokens are dropped at a capacity: the layer must have none, a choice is dropped only where "
    "the router says -1"
)


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
            "expert lives on one rank, which gets all its tokens: its gradient is complete there, "
            "without a factor and without a sum over the group",
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
    why = (
        "gradients of different experts are summed over the group: each rank has other experts, so "
        "nothing must be summed"
    )
    return [*found, (mixed, why), (mixed / size, why)]


def of_router(parts: Sequence[Part], place: int) -> Suspects:
    """Wrong gradients of the router on one place."""
    right = parts[place].router
    summed = torch.stack([part.router for part in parts]).sum(0)
    return [
        (
            summed,
            "the router's gradient is summed over the group: it must be that of this rank's tokens "
            "only. Data parallelism sums it later, and would count it once for each rank",
        ),
        (
            summed / len(parts),
            "the router's gradient is averaged over the group: it must be that of this rank's "
            "tokens only. Data parallelism sums it later",
        ),
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
        (
            "router",
            "the gradient that comes back through the router is missing: the router gets detached "
            "tokens, but its weights depend on the input, too",
        ),
        (
            "experts",
            "the gradient that comes back through the experts is missing: they get detached "
            "tokens, or dispatch passes no gradient back",
        ),
    ):
        found.append((one_device(case, case.experts, case.router, step, place, cut=cut).x, why))
    return found


def of_volume(
    case: MoeCase,
    routes: Exchange,
    operations: Sequence[Operation],
    place: int,
    rows: float,
    wanted: int,
) -> str | None:
    """Why other rows than needed were sent."""
    row = case.xs[0][place][0].nbytes
    gathered = {op.nbytes for op in operations if op.kind in ("all_gather", "broadcast")}
    gathered = {nbytes for nbytes in gathered if nbytes >= row}
    one = [value.nbytes for value in case.experts[0].values()]
    weights = {count * nbytes for nbytes in (*one, sum(one)) for count in (1, case.per_rank)}
    if gathered and gathered <= weights:
        return (
            "the experts' weights travel to all ranks: leave them where they are, and send each "
            "token to the ranks of its experts"
        )
    if gathered:
        return "all tokens travel to all ranks: send each only to the ranks of its experts"
    return exchanged_volume(routes, operations, place, rows, wanted)
