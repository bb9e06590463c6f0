"""Right: a ring that hands strided tensors to isend and irecv, which refuse them."""

import torch
import torch.distributed as dist

TASK = "a1.all_gather"
EXPECT = "passed"


def all_gather(outputs, tensor, group=None):
    rank, size = _start(outputs, tensor, group)
    with torch.no_grad():
        outputs[rank].copy_(tensor)
    passing = tensor.detach()
    for step in range(1, size):
        origin = (rank - step) % size
        room = outputs[origin].detach()
        batch = [
            dist.P2POp(dist.isend, passing, group=group, group_peer=(rank + 1) % size),
            dist.P2POp(dist.irecv, room, group=group, group_peer=(rank - 1) % size),
        ]
        for work in dist.batch_isend_irecv(batch):
            work.wait()
        passing = room


def _start(outputs, tensor, group):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    if len(outputs) != size:
        raise ValueError(f"outputs has {len(outputs)} tensors, expected {size}")
    for output in outputs:
        if output.dtype != tensor.dtype:
            raise ValueError(f"outputs: {output.dtype}, expected {tensor.dtype} as in tensor")
    if outputs[rank].shape != tensor.shape:
        shape = tuple(outputs[rank].shape)
        raise ValueError(f"outputs[{rank}]: shape {shape}, expected {tuple(tensor.shape)}")
    return rank, size
