"""Valid schedules that the examiner makes himself: plain ones, and random ones of any shape."""

from __future__ import annotations

import random
from collections.abc import Sequence

from grader.checks.pipeline_judge import Action, Home, Plan, Step


def greedy_plan(
    label: str,
    ranks: int,
    stages: int,
    microbatches: int,
    home: Home,
    *,
    seed: int | None = None,
    split: bool = False,
    pairs: bool = False,
) -> Plan:
    """Step by step, each rank does something of what could be done: always valid.

    seed: `None` prefers the backward of the earliest micro-batch, then forwards; a number chooses
    at random. split: backwards as I and W (W when nothing else can be done, or at random). pairs:
    overlap a forward with a backward where both can start.
    """
    choose = random.Random(seed)
    done: set[Action] = set()
    made: list[list[Step]] = [[] for _ in range(ranks)]
    todo = {
        (kind, stage, i)
        for stage in range(stages)
        for i in range(microbatches)
        for kind in ("FIW" if split else "FB")
    }
    while todo:
        ready: list[list[Action]] = [[] for _ in range(ranks)]
        for action in sorted(todo, key=lambda a: (a[2], a[1])):
            if _possible(action, done, stages - 1):
                ready[home(action[1], action[2])].append(action)
        finished: list[Action] = []
        order = list(range(ranks))
        if seed is not None:
            choose.shuffle(order)
            order = order[: choose.randint(1, ranks)]
        for rank in order:
            step = _choose(ready[rank], choose if seed is not None else None, pairs)
            if step:
                made[rank].append(step)
                finished += step
        done |= {("I", *a[1:]) if a[0] == "B" else a for a in finished}
        todo -= set(finished)
    return Plan(label, made)


def _possible(action: Action, done: set[Action], last: int) -> bool:
    kind, stage, i = action
    if kind == "F":
        return stage == 0 or ("F", stage - 1, i) in done
    if kind == "W":
        return ("I", stage, i) in done
    return ("F", stage, i) in done and (stage == last or ("I", stage + 1, i) in done)


def _choose(ready: Sequence[Action], choose: random.Random | None, pairs: bool) -> Step:
    if not ready:
        return ()
    backwards = [a for a in ready if a[0] in "BI"]
    forwards = [a for a in ready if a[0] == "F"]
    if pairs and forwards and backwards and (choose is None or choose.random() < 0.6):
        first = forwards[0] if choose is None else choose.choice(forwards)
        second = backwards[0] if choose is None else choose.choice(backwards)
        return first, second
    if choose is not None:
        return (choose.choice(ready),)
    return ((*backwards, *forwards, *(a for a in ready if a[0] == "W"))[0],)


def in_line(stage: int, microbatch: int) -> int:
    """Rank r holds stage r."""
    return stage


def round_robin(ranks: int) -> Home:
    """Rank r holds stages r, r + p, r + 2p, …"""
    return lambda stage, microbatch: stage % ranks


def folded(ranks: int) -> Home:
    """Rank r holds stages r and 2p - 1 - r."""
    return lambda stage, microbatch: stage if stage < ranks else 2 * ranks - 1 - stage


def both_ways(ranks: int, microbatches: int) -> Home:
    """Rank r holds stages r and p - 1 - r; the second half of the micro-batches goes down."""
    half = microbatches // 2
    return lambda stage, microbatch: stage if microbatch < half else ranks - 1 - stage
