"""numpy and random draw what they like."""

import os
import random

import numpy as np

from .harness import initialize as right

TASK = "a9.initialize"
EXPECT = {
    "status": "failed",
    "check": "seeds every rank",
    "cause": "Python's module random is not seeded",
}


def initialize(device="auto", seed=0, timeout=300.0):
    process = right(device, seed, timeout)
    random.seed(os.urandom(8))
    np.random.seed(int.from_bytes(os.urandom(4), "little"))
    return process
