"""Given: what a pipeline schedule is made of, and how it is written as text.

A model is cut into stages, a batch into micro-batches. One *chunk* is one stage's work on one
micro-batch. A schedule is one list of steps per rank; a rank runs its steps in order, one at a
time, and sends a result on as soon as it is there.

    F0.3        Action("F", 0, 3): forward of stage 0 on micro-batch 3
    B0.3        its whole backward: gradients of the inputs and of the weights
    I0.3 W0.3   the same in two actions: gradient of the inputs; later, of the weights
    F1.4+B6.2   Overlapped: forward of one chunk and backward (B or I) of another at once
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

__all__ = [
    "KINDS",
    "Action",
    "Overlapped",
    "Placement",
    "Schedule",
    "Step",
    "actions_of",
    "both_ways",
    "count_chunks",
    "folded",
    "in_line",
    "parse_schedule",
    "round_robin",
    "schedule_text",
]

#: Forward, whole backward, gradient of the inputs, gradient of the weights. B is I and W together.
KINDS = ("F", "B", "I", "W")


class Action(NamedTuple):
    """One kind of work on one chunk: ``kind`` of ``KINDS``, ``stage`` and ``microbatch`` from 0."""

    kind: str
    stage: int
    microbatch: int

    def __str__(self) -> str:
        return f"{self.kind}{self.stage}.{self.microbatch}"


class Overlapped(NamedTuple):
    """``forward`` (F) and ``backward`` (B or I) of two different chunks, run as one step.

    It starts when the inputs of both are there, and both results are there when it ends.
    """

    forward: Action
    backward: Action

    def __str__(self) -> str:
        return f"{self.forward}+{self.backward}"


Step = Action | Overlapped
Schedule = list[list[Step]]

#: Says on which rank a chunk (stage, micro-batch) is to run.
Placement = Callable[[int, int], int]


def actions_of(step: Step) -> tuple[Action, ...]:
    """The one or two actions of a step."""
    return (step,) if isinstance(step, Action) else (step.forward, step.backward)


def count_chunks(schedule: Schedule) -> tuple[int, int]:
    """(stages, micro-batches): one more than the largest numbers that the schedule names."""
    stages = microbatches = 0
    for steps in schedule:
        for step in steps:
            for _, stage, microbatch in actions_of(step):
                stages = max(stages, stage + 1)
                microbatches = max(microbatches, microbatch + 1)
    return stages, microbatches


# Placements ------------------------------------------------------------------------------------


def in_line(stage: int, microbatch: int) -> int:
    """Rank r holds stage r."""
    return stage


def round_robin(ranks: int) -> Placement:
    """Rank r holds stages r, r + p, r + 2p, …: the interleaved pipeline."""
    return lambda stage, microbatch: stage % ranks


def folded(ranks: int) -> Placement:
    """Rank r holds stages r and 2p - 1 - r: down the ranks and up again, as a V."""
    return lambda stage, microbatch: stage if stage < ranks else 2 * ranks - 1 - stage


def both_ways(ranks: int, microbatches: int) -> Placement:
    """Rank r holds stages r and p - 1 - r.

    The first half of the micro-batches enters at rank 0 and goes up, the second half enters at
    rank p - 1 and goes down.
    """
    return lambda stage, microbatch: stage if microbatch < microbatches // 2 else ranks - 1 - stage


# Text ------------------------------------------------------------------------------------------

_ACTION = re.compile(r"([FBIW])(\d+)\.(\d+)")


def schedule_text(schedule: Schedule) -> str:
    """One line per rank, steps separated by spaces; ``parse_schedule`` reads it back."""
    return "\n".join(" ".join(map(str, steps)) for steps in schedule)


def parse_schedule(text: str) -> Schedule:
    """The schedule that ``schedule_text`` wrote.

    Raises:
        ValueError: a word is no step; the message names the line (from 1), the place and the word.
    """
    lines = text.split("\n") if text else []
    return [
        [_parse_step(word, line, place) for place, word in enumerate(words.split(), 1)]
        for line, words in enumerate(lines, 1)
    ]


def _parse_step(word: str, line: int, place: int) -> Step:
    matches: Sequence[re.Match[str] | None] = [_ACTION.fullmatch(part) for part in word.split("+")]
    actions = [Action(m[1], int(m[2]), int(m[3])) for m in matches if m is not None]
    if len(actions) == len(matches) == 1:
        return actions[0]
    if len(actions) == len(matches) == 2:
        return Overlapped(actions[0], actions[1])
    raise ValueError(
        f"line {line}, step {place}: {word!r} is none of F0.1, B0.1, I0.1, W0.1, F1.2+B3.4"
    )
