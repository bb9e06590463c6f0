"""Works on half of the elements and forgets the rest."""

import torch
import torch.distributed as dist

TASK = "a1.all_reduce_pairwise"
EXPECT = {
    "status": "failed",
    "check": "reduces into every rank's tensor",
    "cause": "only the first",
}


def all_reduce_pairwise(tensor, op=dist.ReduceOp.SUM, group=None):
    rank, size, rooms = _everything(tensor, op, group)
    result = tensor.detach().clone(memory_format=torch.contiguous_format)
    half = result.numel() // 2
    result.view(-1)[:half] = _fold(rooms, op).reshape(-1)[:half]
    tensor.detach().copy_(result)


def _start(tensor, op, group, checked=True):
    known = [getattr(dist.ReduceOp, name) for name in ("SUM", "AVG", "MAX", "MIN", "PRODUCT")]
    if op not in known:
        raise ValueError(f"op={op} is none of {known}")
    real = tensor.is_floating_point() or tensor.is_complex()
    if op == dist.ReduceOp.AVG and checked and not real:
        raise ValueError(f"op={op} needs floating-point numbers, not {tensor.dtype}")
    return dist.get_rank(group), dist.get_world_size(group)


def _everything(tensor, op, group, checked=True):
    rank, size = _start(tensor, op, group, checked)
    message = tensor.detach().contiguous()
    rooms = [message if peer == rank else torch.empty_like(message) for peer in range(size)]
    batch = []
    for peer in range(size):
        if peer != rank:
            batch.append(dist.P2POp(dist.isend, message, group=group, group_peer=peer))
            batch.append(dist.P2POp(dist.irecv, rooms[peer], group=group, group_peer=peer))
    for work in dist.batch_isend_irecv(batch) if batch else ():
        work.wait()
    return rank, size, rooms


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
