"""Goes on with a pass before its exchange has ended; waits at the end."""

from itertools import zip_longest

TASK = "a7.overlapped_forward_backward"
EXPECT = {
    "status": "failed",
    "check": "runs every phase once",
    "cause": "has been waited for",
}


def overlapped_forward_backward(forward, backward):
    works = []
    for phases in zip_longest(forward.phases, backward.phases):
        works += [phase.run() for phase in phases if phase is not None]
    for work in works:
        if work is not None:
            work.wait()
