"""Right: of the W that wait, the newest goes first."""

from .schedule import Action
from .schedules import one_f_one_b_schedule

TASK = "a6.zero_bubble_schedule"
EXPECT = "passed"


def zero_bubble_schedule(stages, microbatches):
    schedule = []
    for stage, steps in enumerate(one_f_one_b_schedule(stages, microbatches)):
        out, waiting = [], []
        for kind, _, i in steps:
            out.append(Action("I" if kind == "B" else kind, stage, i))
            if kind == "B":
                waiting.append(i)
                if len(waiting) > stage:
                    out.append(Action("W", stage, waiting.pop()))
        out += [Action("W", stage, i) for i in reversed(waiting)]
        schedule.append(out)
    return schedule
