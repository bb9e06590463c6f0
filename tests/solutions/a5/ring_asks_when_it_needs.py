"""Waits for the next block before it attends to this one."""

from .context_parallel import Neighbours as Solved

TASK = "a5.ring_attention"
EXPECT = {
    "status": "failed",
    "check": "hides the transfer",
    "cause": "is posted only when the block is needed",
}


class Neighbours(Solved):
    def post(self, leaving):
        arriving, works = super().post(leaving)
        for work in works:
            work.wait()
        return arriving, []
