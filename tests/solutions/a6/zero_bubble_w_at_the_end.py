"""All W after everything else."""

from .schedules import one_f_one_b_schedule

TASK = "a6.zero_bubble_schedule"
EXPECT = {
    "status": "failed",
    "check": "keeps no more",
    "cause": "put off too long",
}


def zero_bubble_schedule(stages, microbatches):
    schedule = []
    for steps in one_f_one_b_schedule(stages, microbatches):
        first = [s._replace(kind="I") if s.kind == "B" else s for s in steps]
        schedule.append(first + [s._replace(kind="W") for s in steps if s.kind == "B"])
    return schedule
