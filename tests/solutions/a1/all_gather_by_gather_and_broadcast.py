"""Rank 0 collects everything and sends the whole list to everybody."""

import torch.distributed as dist

TASK = "a1.all_gather"
EXPECT = {
    "status": "failed",
    "check": "receives only what it lacks",
    "cause": "its own tensor came back to it",
}


def all_gather(outputs, tensor, group=None):
    rank, size = _start(outputs, tensor, group)
    outputs[rank].copy_(tensor)
    rooms = [output.contiguous() for output in outputs]
    if rank == 0:
        for peer in range(1, size):
            dist.recv(rooms[peer], group=group, group_src=peer)
        for peer in range(1, size):
            for room in rooms:
                dist.send(room, group=group, group_dst=peer)
    else:
        dist.send(tensor.contiguous(), group=group, group_dst=0)
        for room in rooms:
            dist.recv(room, group=group, group_src=0)
    for output, room in zip(outputs, rooms, strict=True):
        output.copy_(room)


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
