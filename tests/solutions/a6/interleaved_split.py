"""Right: every backward in two actions."""

from .schedules import interleaved_schedule as published

TASK = "a6.interleaved_schedule"
EXPECT = "passed"


def interleaved_schedule(ranks, microbatches, chunks):
    schedule = []
    for steps in published(ranks, microbatches, chunks):
        cut = []
        for step in steps:
            whole = step.kind == "B"
            cut += [step._replace(kind="I"), step._replace(kind="W")] if whole else [step]
        schedule.append(cut)
    return schedule
