"""Starts one more forward before the first backward: p + 2 activations."""

from ..a6_pipeline_parallel.schedule import Overlapped
from .schedules import dualpipe_schedule as published

TASK = "a7.dualpipe_schedule"
EXPECT = {
    "status": "failed",
    "check": "keeps no more",
    "cause": "fill the pipeline",
}


def dualpipe_schedule(ranks, microbatches):
    schedule = published(ranks, microbatches)
    for steps in schedule:
        pair = next(i for i, step in enumerate(steps) if isinstance(step, Overlapped))
        forward, steps[pair] = steps[pair]
        # The first pair's forward goes before everything else that is no forward.
        first = next((i for i, s in enumerate(steps) if getattr(s, "kind", "") in "BI"), pair)
        steps.insert(first, forward)
    return schedule
