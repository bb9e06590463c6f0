"""Affinity stays what initialize made of it."""

import os

from .harness import shutdown

TASK = "a9.shutdown"
EXPECT = {
    "status": "failed",
    "check": "leaves the process as it was found",
    "cause": "the CPU affinity from before initialize() is not restored",
}


def shutdown(error=None, right=shutdown):
    cores = os.sched_getaffinity(0)
    right(error)
    os.sched_setaffinity(0, cores)
