"""Collects the sum in the caller's own entry."""

import torch
import torch.distributed as dist

TASK = "a1.reduce_scatter"
EXPECT = {
    "status": "failed",
    "check": "leaves its inputs alone",
    "cause": "was written into inputs",
}


def reduce_scatter(output, inputs, op=dist.ReduceOp.SUM, group=None):
    rank, size = _start(output, inputs, op, group)
    for step in range(1, size):
        room = torch.empty(output.shape, dtype=output.dtype)
        to, source = (rank + step) % size, (rank - step) % size
        batch = [
            dist.P2POp(dist.isend, inputs[to].contiguous(), group=group, group_peer=to),
            dist.P2POp(dist.irecv, room, group=group, group_peer=source),
        ]
        for work in dist.batch_isend_irecv(batch):
            work.wait()
        inputs[rank].copy_(_fold([inputs[rank], room], op, average=False))
    output.copy_(inputs[rank] / size if op == dist.ReduceOp.AVG else inputs[rank])


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
