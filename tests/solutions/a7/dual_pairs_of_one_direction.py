"""Pairs a forward with a backward of its own direction."""

from ..a6_pipeline_parallel.schedule import Overlapped
from ..a6_pipeline_parallel.schedules import one_f_one_b_schedule

TASK = "a7.dualpipe_schedule"
EXPECT = {
    "status": "failed",
    "check": "does everything once",
    "cause": "a pair is to hide one direction",
}


def dualpipe_schedule(ranks, microbatches):
    half = microbatches // 2
    up = []
    for steps in one_f_one_b_schedule(ranks, half):
        paired = []
        for step in steps:
            before = paired[-1] if paired else None
            if step.kind == "B" and getattr(before, "kind", "") == "F" and before[1:] != step[1:]:
                paired[-1] = Overlapped(before, step)
            else:
                paired.append(step)
        up.append(paired)
    return [up[rank] + [_moved(s, half) for s in up[ranks - 1 - rank]] for rank in range(ranks)]


def _moved(step, by):
    if isinstance(step, Overlapped):
        return Overlapped(_moved(step.forward, by), _moved(step.backward, by))
    return step._replace(microbatch=step.microbatch + by)
