"""Every W directly after its I."""

from .schedule import Action
from .schedules import one_f_one_b_schedule

TASK = "a6.zero_bubble_schedule"
EXPECT = {
    "status": "failed",
    "check": "idles no longer than ZB1P",
    "cause": "every W follows its I at once",
}


def zero_bubble_schedule(stages, microbatches):
    schedule = []
    for steps in one_f_one_b_schedule(stages, microbatches):
        cut = []
        for kind, stage, i in steps:
            cut += [Action(k, stage, i) for k in ("IW" if kind == "B" else kind)]
        schedule.append(cut)
    return schedule
