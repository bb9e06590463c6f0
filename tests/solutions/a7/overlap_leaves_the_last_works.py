"""Whoever ends with an exchange is not waited for."""

from collections import deque

TASK = "a7.overlapped_forward_backward"
EXPECT = {
    "status": "failed",
    "check": "runs every phase once",
    "cause": "a work handle was dropped",
}


def overlapped_forward_backward(forward, backward):
    passes, works = [deque(forward.phases), deque(backward.phases)], [None, None]
    while any(passes):
        for i, phases in enumerate(passes):
            if phases:
                if works[i] is not None:
                    works[i].wait()
                works[i] = phases.popleft().run()
