"""--resume is not looked at."""

from .train import _Training

TASK = "a9.train"
EXPECT = {
    "status": "failed",
    "check": "goes on from a checkpoint",
    "cause": "the checkpoint is not read",
}

_Training.resume = lambda self: 0
