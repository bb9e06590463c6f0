"""Fills the list by ascending global rank."""

import torch.distributed as dist

TASK = "a1.all_gather"
EXPECT = {
    "status": "failed",
    "check": "works in sub-groups",
    "cause": "group rank",
}


def all_gather(outputs, tensor, group=None):
    rank, size = _start(outputs, tensor, group)
    message = tensor.contiguous()
    me = dist.get_rank()
    batch, rooms = [], []
    for index, peer in enumerate(sorted(dist.get_process_group_ranks(group))):
        rooms.append(outputs[index].contiguous())
        if peer == me:
            rooms[-1] = message
            continue
        batch.append(dist.P2POp(dist.isend, message, peer, group))
        batch.append(dist.P2POp(dist.irecv, rooms[-1], peer, group))
    for work in dist.batch_isend_irecv(batch) if batch else ():
        work.wait()
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
