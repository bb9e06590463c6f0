"""Takes `server`, a group rank, for a global one."""

import torch
import torch.distributed as dist

TASK = "a1.all_reduce_parameter_server"
EXPECT = {
    "status": "error",
    "check": "works in sub-groups",
    "cause": "group rank",
}


def all_reduce_parameter_server(tensor, op=dist.ReduceOp.SUM, group=None, server=0):
    rank, size = _start(tensor, op, group, server)
    message = tensor.detach().contiguous()
    if dist.get_rank() != server:
        dist.send(message, server, group)
        dist.recv(message, server, group)
    else:
        workers = [peer for peer in dist.get_process_group_ranks(group) if peer != server]
        rooms = [message] + [torch.empty_like(message) for _ in workers]
        for room, worker in zip(rooms[1:], workers, strict=True):
            dist.recv(room, worker, group)
        message = _fold(rooms, op)
        for worker in workers:
            dist.send(message, worker, group)
    tensor.detach().copy_(message)


def _start(tensor, op, group, server):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    known = [getattr(dist.ReduceOp, name) for name in ("SUM", "AVG", "MAX", "MIN", "PRODUCT")]
    if op not in known:
        raise ValueError(f"op={op} is none of {known}")
    if op == dist.ReduceOp.AVG and not (tensor.is_floating_point() or tensor.is_complex()):
        raise ValueError(f"op={op} needs floating-point numbers, not {tensor.dtype}")
    if not 0 <= server < size:
        raise ValueError(f"server={server}: expected 0 to {size - 1}")
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
