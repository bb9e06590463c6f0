"""Cores by RANK: on the second machine there are none left."""

import os

from .harness import _bind_cores as bind
from .harness import initialize as right

TASK = "a9.initialize"
EXPECT = {
    "status": "failed",
    "check": "takes its share of the cores",
    "cause": "it must go by LOCAL_RANK",
}


def _bind_cores(local_rank, local_world_size):
    rank = int(os.environ.get("RANK", "0"))
    return bind(min(rank, local_world_size - 1), local_world_size)


def initialize(device="auto", seed=0, timeout=300.0):
    return right(device, seed, timeout)
