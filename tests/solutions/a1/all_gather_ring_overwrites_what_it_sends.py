"""A ring in which one buffer is sent on and received into at the same time."""

import torch
import torch.distributed as dist

TASK = "a1.all_gather"
EXPECT = {
    "status": "failed",
    "check": "collects every rank's tensor on every rank",
    "cause": "wait()",
}


def all_gather(outputs, tensor, group=None):
    rank, size = _start(outputs, tensor, group)
    outputs[rank].copy_(tensor)
    buffer = tensor.contiguous().clone()
    for step in range(1, size):
        room = torch.empty(outputs[rank - step].shape, dtype=tensor.dtype)
        receive = dist.irecv(room, group=group, group_src=(rank - 1) % size)
        send = dist.isend(buffer, group=group, group_dst=(rank + 1) % size)
        receive.wait()
        outputs[rank - step].copy_(room)
        if buffer.shape == room.shape:
            buffer.copy_(room)
            send.wait()
        else:
            send.wait()
            buffer = room


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
