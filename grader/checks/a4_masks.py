"""Dropout on ranks: masks of what is cut differ, and the ranks' generators stay alike."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from grader.checks.a4_cases import LayerCase
from grader.checks.framework import CheckFailed

NO_MASKS = "masks are read from torch's bernoulli: use the given `dropout`, or F.dropout"


def judge_masks(case: LayerCase, answers: Sequence[Mapping[str, Any]], task: str) -> None:
    """Assemble the masks that the ranks drew into those of the dense module, in `case.masks`."""
    size = case.size
    drawn = [answers[rank]["masks"] for rank in case.members]
    agreed = [answers[rank]["agreed"] for rank in case.members]
    whole = mask_shapes(case)
    assembled = []
    for number, (shape, dim, what) in enumerate(whole):
        part = list(shape)
        part[dim] //= size
        masks = []
        for place, rank in enumerate(case.members):
            if len(drawn[place]) != len(whole):
                raise CheckFailed(
                    f"{case.label}: rank {rank} drew {len(drawn[place])} masks, of shapes "
                    f"{[tuple(m.shape) for m in drawn[place]]}; expected {len(whole)}",
                    cause=NO_MASKS if not drawn[place] else None,
                )
            mask = drawn[place][number]
            if mask.numel() != math.prod(part):
                raise CheckFailed(
                    f"{case.label}: rank {rank} drew a mask of shape {tuple(mask.shape)} for "
                    f"{what}, expected {tuple(part)}"
                )
            masks.append(mask.reshape(part))
        for place in range(1, size):
            if torch.equal(masks[0], masks[place]):
                raise CheckFailed(
                    f"{case.label}: ranks {case.members[0]} and {case.members[place]}, seeded "
                    f"alike, drew the same mask for {what}",
                    cause="dropout on what is cut must draw other random numbers on every rank",
                )
        assembled.append(torch.cat(masks, dim))
    for place in range(1, size):
        if not torch.equal(agreed[0], agreed[place]):
            raise CheckFailed(
                f"{case.label}: ranks {case.members[0]} and {case.members[place]} were seeded "
                f"alike, but after the layer their default generators differ",
                cause="masks are drawn from a default generator that was seeded by rank: what is "
                "replicated (dropout, initialization) will differ from now on",
            )
    case.masks = assembled


def mask_shapes(case: LayerCase) -> list[tuple[tuple[int, ...], int, str]]:
    """Whole shape, the dimension that is cut, and name of each mask, in order."""
    options = case.spec["options"]
    sequence, batch, hidden = case.xs[0].shape
    block = case.layer == "block"
    attention = options["attention"] if block else options
    found: list[tuple[tuple[int, ...], int, str]] = []
    if attention["dropout"]:
        shape = (batch, attention["heads"], sequence, sequence)
        found.append((shape, 1, "the attention probabilities"))
    if block and options["dropout"]:
        found += [
            ((sequence, batch, hidden), 0, f"the output of the {name}")
            for name in ("attention", "MLP")
        ]
    return found
