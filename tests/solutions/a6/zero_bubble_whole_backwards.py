"""1F1B under another name."""

from .schedules import one_f_one_b_schedule

TASK = "a6.zero_bubble_schedule"
EXPECT = {
    "status": "failed",
    "check": "idles no longer than ZB1P",
    "cause": "no backward is cut into I and W",
}


def zero_bubble_schedule(stages, microbatches):
    return one_f_one_b_schedule(stages, microbatches)
