"""The last rank does all forwards first, the others wait for its backwards."""

from .schedules import gpipe_schedule
from .schedules import one_f_one_b_schedule as published

TASK = "a6.one_f_one_b_schedule"
EXPECT = {
    "status": "failed",
    "check": "does everything once",
    "cause": "wait for each other for ever",
}


def one_f_one_b_schedule(stages, microbatches):
    schedule = published(stages, microbatches)
    return [*schedule[:-1], gpipe_schedule(stages, microbatches)[-1]]
