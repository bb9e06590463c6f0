"""Puts received tensors into the list in place of the caller's."""

import torch
import torch.distributed as dist

TASK = "a1.all_gather"
EXPECT = {
    "status": "failed",
    "check": "collects every rank's tensor on every rank",
    "cause": "new tensors were put into the list",
}


def all_gather(outputs, tensor, group=None):
    rank, size = _start(outputs, tensor, group)
    message = tensor.contiguous()
    rooms = [torch.empty(output.shape, dtype=output.dtype) for output in outputs]
    rooms[rank] = message
    batch = []
    for peer, room in enumerate(rooms):
        if peer != rank:
            batch.append(dist.P2POp(dist.isend, message, group=group, group_peer=peer))
            batch.append(dist.P2POp(dist.irecv, room, group=group, group_peer=peer))
    for work in dist.batch_isend_irecv(batch) if batch else ():
        work.wait()
    outputs[:] = rooms


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
