"""Right: all receives stand ready before the first chunk is sent."""

import torch
import torch.distributed as dist

TASK = "a2.ring_all_gather"
EXPECT = "passed"


def ring_all_gather(output, tensor, group=None):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    _check_shapes(output, tensor, size)
    chunks = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(size)]
    chunks[rank].copy_(tensor)
    coming = [
        dist.irecv(chunks[(rank - step) % size], group=group, group_src=(rank - 1) % size)
        for step in range(1, size)
    ]
    going = []
    for step in range(size - 1):
        if step > 0:
            coming[step - 1].wait()
        send = chunks[(rank - step) % size]
        going.append(dist.isend(send, group=group, group_dst=(rank + 1) % size))
    for work in [*coming[-1:], *going]:
        work.wait()
    output.copy_(torch.cat(chunks))


def _check_shapes(whole, chunk, size):
    if whole.shape[0] != size * chunk.shape[0] or whole.shape[1:] != chunk.shape[1:]:
        raise ValueError(
            f"tensor {tuple(whole.shape)} is not {size} times output {tuple(chunk.shape)}"
        )
