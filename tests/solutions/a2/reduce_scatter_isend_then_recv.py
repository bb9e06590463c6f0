"""Right: a send that does not block, then a receive that does; two tensors, no other copy."""

import torch
import torch.distributed as dist

TASK = "a2.ring_reduce_scatter"
EXPECT = "passed"


def ring_reduce_scatter(output, tensor, op=dist.ReduceOp.SUM, group=None):
    _check(tensor, op)
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    _check_shapes(tensor, output, size)
    chunks = tensor.contiguous().view(-1).tensor_split(size)
    following, previous = (rank + 1) % size, (rank - 1) % size
    total = chunks[previous].clone()
    for step in range(size - 1):
        other = torch.empty_like(total)
        going = dist.isend(total, group=group, group_dst=following)
        dist.recv(other, group=group, group_src=previous)
        going.wait()
        total = _merge(other, chunks[(rank - 2 - step) % size], op)
    result = total / size if op == dist.ReduceOp.AVG else total
    output.copy_(result.view(output.shape))


def _check(tensor, op):
    names = [name for name in ("SUM", "AVG", "MAX", "MIN", "PRODUCT")]
    if op not in [getattr(dist.ReduceOp, name) for name in names]:
        raise ValueError(f"op={op} is none of {names}")
    if op == dist.ReduceOp.AVG and not (tensor.is_floating_point() or tensor.is_complex()):
        raise ValueError(f"op={op} does not go with {tensor.dtype}")


def _check_shapes(whole, chunk, size):
    if whole.shape[0] != size * chunk.shape[0] or whole.shape[1:] != chunk.shape[1:]:
        raise ValueError(
            f"tensor {tuple(whole.shape)} is not {size} times output {tuple(chunk.shape)}"
        )


def _merge(total, other, op):
    if op == dist.ReduceOp.MAX:
        return torch.maximum(total, other)
    if op == dist.ReduceOp.MIN:
        return torch.minimum(total, other)
    return total * other if op == dist.ReduceOp.PRODUCT else total + other
