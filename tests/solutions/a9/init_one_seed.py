"""All ranks are seeded alike."""

import random

import numpy as np
import torch

from .harness import initialize as right

TASK = "a9.initialize"
EXPECT = {
    "status": "failed",
    "check": "seeds every rank",
    "cause": "all ranks have the same seed",
}


def initialize(device="auto", seed=0, timeout=300.0):
    process = right(device, seed, timeout)
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    return process
