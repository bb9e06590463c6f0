"""Right: backwards in the opposite order, and cut in two."""

from .schedule import Action

TASK = "a6.gpipe_schedule"
EXPECT = "passed"


def gpipe_schedule(stages, microbatches):
    if min(stages, microbatches) < 1:
        raise ValueError(f"stages={stages}, microbatches={microbatches}: expected at least 1")
    schedule = []
    for stage in range(stages):
        steps = [Action("F", stage, i) for i in range(microbatches)]
        for i in reversed(range(microbatches)):
            steps += [Action("I", stage, i), Action("W", stage, i)]
        schedule.append(steps)
    return schedule
