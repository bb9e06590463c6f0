"""The product, and then its reduce-scatter."""

import torch.distributed as dist

from .sequence import reduce_scatter_to_sequence_parallel

TASK = "a5.matmul_reduce_scatter"
EXPECT = {
    "status": "failed",
    "check": "communicates while it computes",
    "cause": "run one after the other, each in one piece",
}


def matmul_reduce_scatter(a, b, group=None, chunks=4):
    size = dist.get_world_size(group)
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"a {tuple(a.shape)} and b {tuple(b.shape)} do not fit")
    if a.shape[0] % size:
        raise ValueError(f"{a.shape[0]} rows of a on {size} ranks")
    if chunks < 1:
        raise ValueError(f"chunks={chunks}: expected at least 1")
    return reduce_scatter_to_sequence_parallel(a @ b, group)
