"""Nobody goes back."""

from .schedule import Action

TASK = "a6.gpipe_schedule"
EXPECT = {
    "status": "failed",
    "check": "does everything once",
    "cause": "no backward at all",
}


def gpipe_schedule(stages, microbatches):
    return [[Action("F", stage, i) for i in range(microbatches)] for stage in range(stages)]
