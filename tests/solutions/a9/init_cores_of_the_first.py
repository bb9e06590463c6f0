"""LOCAL_RANK is not looked at: all ranks share the first cores."""

from .harness import _bind_cores as bind
from .harness import initialize as right

TASK = "a9.initialize"
EXPECT = {
    "status": "failed",
    "check": "takes its share of the cores",
    "cause": "LOCAL_RANK is not looked at",
}


def _bind_cores(local_rank, local_world_size):
    return bind(0, local_world_size)


def initialize(device="auto", seed=0, timeout=300.0):
    return right(device, seed, timeout)
