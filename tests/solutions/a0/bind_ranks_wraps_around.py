# ruff: noqa: F821 (names of the reference)
"""Ranks beyond the GPUs share them."""

TASK = "a0.bind_ranks"
EXPECT = {
    "status": "failed",
    "check": "refuses more ranks",
    "cause": "not checked",
}


_old = bind_ranks


def bind_ranks(topology, local_world_size):
    count = len(topology.gpus)
    whole = _old(topology, min(local_world_size, count))
    return [whole[rank % count] for rank in range(local_world_size)]
