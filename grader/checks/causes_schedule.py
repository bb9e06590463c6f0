"""Likely causes of schedules that are not valid."""

from __future__ import annotations

from collections.abc import Iterable

Action = tuple[str, int, int]  # kind, stage, micro-batch


def why_outside(
    actions: Iterable[Action], stages: int, microbatches: int, two_ways: bool
) -> str | None:
    """Why an action lies outside the sizes of the schedule; None where nothing is known."""
    numbers = [(stage, microbatch) for _, stage, microbatch in actions]
    first = [min(each) for each in zip(*numbers, strict=True)]
    if max(stage for stage, _ in numbers) == stages and first[0] == 1:
        return "stages are counted from 1; the first one is 0"
    if first[1] < 0 or first[0] < 0:
        return None
    if first[1] == 1:
        return "micro-batches are counted from 1; the first one is 0"
    if max(microbatch for _, microbatch in numbers) >= microbatches:
        return (
            "each direction has half of the micro-batches"
            if two_ways
            else "more forwards than micro-batches: the warm-up is not limited by their number"
        )
    return None


def why_no_w(actions: Iterable[Action]) -> str:
    """Why the weight gradients of a chunk are missing."""
    if any(kind == "W" for kind, _, _ in actions):
        return "some weight gradients are put off and then never computed"
    return "weight gradients are never computed: the schedule has I steps and no W steps"


def why_incomplete(found: str, actions: Iterable[Action]) -> str:
    """Why a chunk has only `found` of its actions."""
    if found != "F":
        return "a chunk is left out" if not found else "a part of a chunk's work is left out"
    if not any(kind in "BI" for kind, _, _ in actions):
        return "the schedule has no backward at all"
    return "the backward of this chunk is left out"


def why_stuck(waiting: Iterable[Action]) -> str:
    """Why ranks wait for each other. waiting: the actions that do."""
    if all(kind in ("B", "I") for kind, _, _ in waiting):
        return (
            "these ranks wait for each other for ever: backwards go through the stages in the "
            "reverse order, the last stage first"
        )
    return "these ranks wait for each other for ever: each puts first what the other puts last"


def why_too_early(step: Iterable[Action], need: Action) -> str:
    """Why what a step needs comes later on the same rank."""
    kind, stage, microbatch = need
    if kind == "F" and ("F", stage + 1, microbatch) in step:
        return "the forward of a stage comes before that of the stage before it"
    if kind == "F":
        return "a chunk's backward comes before its forward"
    if ("W", stage, microbatch) in step:
        return "the W of a chunk comes before its I"
    return (
        "a stage's backward comes before that of the stage after it: backwards go through the "
        "stages in the reverse order"
    )
