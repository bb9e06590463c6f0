"""Sends its whole list to everybody, reduces all of it and keeps one entry."""

import torch
import torch.distributed as dist

TASK = "a1.reduce_scatter"
EXPECT = {
    "status": "failed",
    "check": "sends each entry only to the rank that reduces it",
    "cause": "entries that the receiver does not need",
}


def reduce_scatter(output, inputs, op=dist.ReduceOp.SUM, group=None):
    rank, size = _start(output, inputs, op, group)
    flat = torch.cat([each.detach().reshape(-1) for each in inputs])
    rooms = [flat if peer == rank else torch.empty_like(flat) for peer in range(size)]
    batch = []
    for peer in range(size):
        if peer != rank:
            batch.append(dist.P2POp(dist.isend, flat, group=group, group_peer=peer))
            batch.append(dist.P2POp(dist.irecv, rooms[peer], group=group, group_peer=peer))
    for work in dist.batch_isend_irecv(batch) if batch and flat.numel() else ():
        work.wait()
    counts = [each.numel() for each in inputs]
    mine = [room.split(counts)[rank].view(output.shape) for room in rooms]
    output.copy_(_fold(mine, op))


def _start(output, inputs, op, group):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    known = [getattr(dist.ReduceOp, name) for name in ("SUM", "AVG", "MAX", "MIN", "PRODUCT")]
    if op not in known:
        raise ValueError(f"op={op} is none of {known}")
    if op == dist.ReduceOp.AVG and not (output.is_floating_point() or output.is_complex()):
        raise ValueError(f"op={op} needs floating-point numbers, not {output.dtype}")
    if len(inputs) != size:
        raise ValueError(f"inputs has {len(inputs)} tensors, expected {size}")
    for each in inputs:
        if each.dtype != output.dtype:
            raise ValueError(f"inputs: {each.dtype}, expected {output.dtype} as in output")
    if inputs[rank].shape != output.shape:
        shape = tuple(inputs[rank].shape)
        raise ValueError(f"inputs[{rank}]: shape {shape}, expected {tuple(output.shape)}")
    return rank, size


def _fold(tensors, op, average=True):
    total = tensors[0].detach().clone()
    for tensor in tensors[1:]:
        if op == dist.ReduceOp.MAX:
            total = torch.maximum(total, tensor)
        elif op == dist.ReduceOp.MIN:
            total = torch.minimum(total, tensor)
        elif op == dist.ReduceOp.PRODUCT:
            total = total * tensor
        else:
            total = total + tensor
    return total / len(tensors) if average and op == dist.ReduceOp.AVG else total
