"""From a wrong gradient, loss or state to what people do wrong in data parallelism."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

AVERAGES_PARAMETERS = (
    "the parameters are averaged, not the gradients: the gradients are each rank's own, while the "
    "parameters agree (with Adam the result is another one)"
)
NOT_AVERAGED = "the gradient is this rank's own: not averaged, or the average was not written back"
NEVER_SENT = (
    "the gradient is this rank's own: its bucket is never sent when backward does not reach every "
    "parameter in it"
)
ADDED_UP = "the gradients are added up and never divided by the number of ranks"
DIVIDED_TWICE = "the gradients are averaged twice: divided by the number of ranks once too often"
DIVIDED_BY_WORLD = "divided by the size of the world, not of the group"
ONLY_THE_FIRST = "the gradient is that of the first rank, not the average"
ONLY_LAST_MICRO_BATCH = "only the last micro-batch counts: what no_sync accumulated is lost"
UNUSED_IS_NONE = (
    "a parameter that only some ranks used counts as zero on the others, and gets the average there"
)
UNUSED_IS_ZERO = (
    "no rank used it, so its gradient must stay None: weight decay and momentum move a parameter "
    "whose gradient is zero"
)
OVER_USERS = "divided by the number of ranks that used the parameter, not by the size of the group"


def gradient_suspects(
    local: Sequence[torch.Tensor | None], place: int, world: int, like: torch.Tensor
) -> list[tuple[torch.Tensor, str]]:
    """Wrong averages that people get. local: by group rank; place: this rank's; world: its size."""
    size = len(local)
    filled = [torch.zeros_like(like) if each is None else each for each in local]
    total = torch.stack(filled).sum(0)
    suspects = []
    if size > 1:
        suspects += [
            (filled[place], NOT_AVERAGED),
            (total, ADDED_UP),
            (total / size**2, DIVIDED_TWICE),
            (filled[0], ONLY_THE_FIRST),
        ]
    if world != size:
        suspects.append((total / world, DIVIDED_BY_WORLD))
    users = sum(each is not None for each in local)
    if 0 < users < size:
        suspects.append((total / users, OVER_USERS))
    return suspects


def parameters_agree(answers: Sequence[Mapping[str, Any]], step: int) -> bool:
    """Whether all ranks hold the same parameters before a step's update."""
    first, *others = (answer["steps"][step]["parameters"] for answer in answers)
    return all(
        torch.allclose(first[name], other[name], rtol=1e-9, atol=1e-12)
        for other in others
        for name in first
    )
