"""All forwards, then all backwards."""

from .schedules import gpipe_schedule

TASK = "a6.one_f_one_b_schedule"
EXPECT = {
    "status": "failed",
    "check": "keeps no more",
    "cause": "as GPipe does",
}


def one_f_one_b_schedule(stages, microbatches):
    return gpipe_schedule(stages, microbatches)
