"""A phase of each in turn, every one waited for at once."""

from itertools import zip_longest

TASK = "a7.overlapped_forward_backward"
EXPECT = {
    "status": "failed",
    "check": "computes one pass while",
    "cause": "nothing overlaps",
}


def overlapped_forward_backward(forward, backward):
    for phases in zip_longest(forward.phases, backward.phases):
        for phase in phases:
            work = phase.run() if phase is not None else None
            if work is not None:
                work.wait()
