"""Cuts into chunks, and waits for each."""

import torch
import torch.distributed as dist

from .sequence import reduce_scatter_to_sequence_parallel

TASK = "a5.matmul_reduce_scatter"
EXPECT = {
    "status": "failed",
    "check": "communicates while it computes",
    "cause": "each part is waited for before the next one is begun",
}


def matmul_reduce_scatter(a, b, group=None, chunks=4):
    size = dist.get_world_size(group)
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"a {tuple(a.shape)} and b {tuple(b.shape)} do not fit")
    if a.shape[0] % size:
        raise ValueError(f"{a.shape[0]} rows of a on {size} ranks")
    if chunks < 1:
        raise ValueError(f"chunks={chunks}: expected at least 1")
    rows = a.shape[0] // size
    parts = []
    for part in a.view(size, rows, -1).tensor_split(min(chunks, rows), 1):
        parts.append(reduce_scatter_to_sequence_parallel((part @ b).flatten(0, 1), group))
    return torch.cat(parts)
