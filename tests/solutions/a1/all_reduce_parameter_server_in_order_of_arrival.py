"""Right: the server takes the tensors as they come, and adds them in the order of their ranks."""

import torch
import torch.distributed as dist

TASK = "a1.all_reduce_parameter_server"
EXPECT = "passed"


def all_reduce_parameter_server(tensor, op=dist.ReduceOp.SUM, group=None, server=0):
    rank, size = _start(tensor, op, group, server)
    message = tensor.detach().contiguous()
    if rank != server:
        dist.send(message, group=group, group_dst=server)
        dist.recv(message, group=group, group_src=server)
    else:
        rooms = {dist.get_rank(): message}
        for _ in range(size - 1):
            room = torch.empty_like(message)
            rooms[dist.recv(room, group=group)] = room
        message = _fold([rooms[source] for source in sorted(rooms)], op)
        works = []
        for peer in range(size):
            if peer != server:
                works.append(dist.isend(message, group=group, group_dst=peer))
        for work in works:
            work.wait()
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
