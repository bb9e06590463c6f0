"""Warms up with more micro-batches than there are."""

from .schedule import Action

TASK = "a6.one_f_one_b_schedule"
EXPECT = {
    "status": "failed",
    "check": "does everything once",
    "cause": "warm-up is not limited",
}


def one_f_one_b_schedule(stages, microbatches):
    schedule = []
    for stage in range(stages):
        warm_up = stages - 1 - stage
        steps = [Action("F", stage, i) for i in range(warm_up)]
        for i in range(microbatches - warm_up):
            steps += [Action("F", stage, warm_up + i), Action("B", stage, i)]
        steps += [
            Action("B", stage, i) for i in range(max(0, microbatches - warm_up), microbatches)
        ]
        schedule.append(steps)
    return schedule
