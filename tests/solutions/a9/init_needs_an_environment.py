"""Alone, without torchrun, it falls over."""

import os

from .harness import initialize as right

TASK = "a9.initialize"
EXPECT = {
    "status": "failed",
    "check": "joins the job",
    "cause": "the variables of torchrun are needed",
}


def initialize(device="auto", seed=0, timeout=300.0):
    int(os.environ["RANK"])
    return right(device, seed, timeout)
