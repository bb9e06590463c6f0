"""A share of the cores is worked out and told, but not taken."""

import os

TASK = "a9.initialize"
EXPECT = {"status": "failed", "check": "takes its share of the cores", "cause": "is not called"}


def _bind_cores(local_rank, local_world_size):
    cores = sorted(os.sched_getaffinity(0))
    begin, end = (len(cores) * r // local_world_size for r in (local_rank, local_rank + 1))
    return tuple(cores[begin:end] or [cores[local_rank % len(cores)]])
