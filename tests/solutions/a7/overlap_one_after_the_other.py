"""The forward, then the backward."""

TASK = "a7.overlapped_forward_backward"
EXPECT = {
    "status": "failed",
    "check": "computes one pass while",
    "cause": "nothing overlaps",
}


def overlapped_forward_backward(forward, backward):
    forward.run()
    backward.run()
