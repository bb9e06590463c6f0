"""Warms up with one forward too many."""

from .schedule import Action

TASK = "a6.one_f_one_b_schedule"
EXPECT = {
    "status": "failed",
    "check": "keeps no more",
    "cause": "fill the pipeline",
}


def one_f_one_b_schedule(stages, microbatches):
    schedule = []
    for stage in range(stages):
        warm_up = min(stages - stage, microbatches)
        steps = [Action("F", stage, i) for i in range(warm_up)]
        for i in range(microbatches - warm_up):
            steps += [Action("F", stage, warm_up + i), Action("B", stage, i)]
        steps += [Action("B", stage, i) for i in range(microbatches - warm_up, microbatches)]
        schedule.append(steps)
    return schedule
