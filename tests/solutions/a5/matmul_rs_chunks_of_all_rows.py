"""Cuts all rows into chunks: a rank ends with rows from all over."""

import torch
import torch.distributed as dist

from .sequence import reduce_scatter_to_sequence_parallel

TASK = "a5.matmul_reduce_scatter"
EXPECT = {
    "status": "failed",
    "check": "is the rank's share of the product",
    "cause": "a run of neighbouring rows",
}


def matmul_reduce_scatter(a, b, group=None, chunks=4):
    rows = a.shape[0] // dist.get_world_size(group)
    parts = a.tensor_split(min(chunks, rows))
    if any(len(part) % dist.get_world_size(group) for part in parts):
        parts = [a]
    return torch.cat([reduce_scatter_to_sequence_parallel(part @ b, group) for part in parts])
