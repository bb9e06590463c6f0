"""Takes the neighbours in the group for global ranks."""

import torch
import torch.distributed as dist

TASK = "a2.ring_all_gather"
EXPECT = {
    "status": "error",
    "cause": "a group rank is passed where",
    "check": "puts every rank's chunk in its place",
}


def ring_all_gather(output, tensor, group=None):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    _check_shapes(output, tensor, size)
    chunks = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(size)]
    chunks[rank].copy_(tensor)
    for step in range(size - 1):
        works = [
            dist.isend(chunks[(rank - step) % size], (rank + 1) % size, group),
            dist.irecv(chunks[(rank - 1 - step) % size], (rank - 1) % size, group),
        ]
        for work in works:
            work.wait()
    output.copy_(torch.cat(chunks))


def _check_shapes(whole, chunk, size):
    if whole.shape[0] != size * chunk.shape[0] or whole.shape[1:] != chunk.shape[1:]:
        raise ValueError(
            f"tensor {tuple(whole.shape)} is not {size} times output {tuple(chunk.shape)}"
        )
