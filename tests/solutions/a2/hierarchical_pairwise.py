"""Right: no ring anywhere, every chunk goes straight to its owner, on both levels."""

import torch
import torch.distributed as dist

TASK = "a2.hierarchical_all_reduce"
EXPECT = "passed"


def hierarchical_all_reduce(tensor, op, intra_group, inter_group):
    _check(tensor, op)
    place, g = dist.get_rank(intra_group), dist.get_world_size(intra_group)
    node, k = dist.get_rank(inter_group), dist.get_world_size(inter_group)
    flat = tensor.contiguous().view(-1)
    shards = flat.tensor_split(g)
    pieces = shards[place].tensor_split(k)
    _to_owners(shards, op, intra_group)
    _to_owners(pieces, op, inter_group)
    if op == dist.ReduceOp.AVG:
        pieces[node].div_(g * k)
    _from_owners(pieces, inter_group)
    _from_owners(shards, intra_group)
    tensor.copy_(flat.view(tensor.shape))


def _to_owners(chunks, op, group):
    rank = dist.get_rank(group)
    others = [peer for peer in range(len(chunks)) if peer != rank]
    rooms = [torch.empty_like(chunks[rank]) for _ in others]
    _exchange([(chunks[peer], peer) for peer in others], zip(rooms, others, strict=True), group)
    for room in rooms:
        chunks[rank].copy_(_merge(chunks[rank], room, op))


def _from_owners(chunks, group):
    rank = dist.get_rank(group)
    others = [peer for peer in range(len(chunks)) if peer != rank]
    _exchange([(chunks[rank], p) for p in others], [(chunks[p], p) for p in others], group)


def _exchange(sends, receives, group):
    calls = [dist.P2POp(dist.isend, each, group=group, group_peer=peer) for each, peer in sends]
    calls += [dist.P2POp(dist.irecv, each, group=group, group_peer=peer) for each, peer in receives]
    for work in dist.batch_isend_irecv(calls) if calls else []:
        work.wait()


def _check(tensor, op):
    names = [name for name in ("SUM", "AVG", "MAX", "MIN", "PRODUCT")]
    if op not in [getattr(dist.ReduceOp, name) for name in names]:
        raise ValueError(f"op={op} is none of {names}")
    if op == dist.ReduceOp.AVG and not (tensor.is_floating_point() or tensor.is_complex()):
        raise ValueError(f"op={op} does not go with {tensor.dtype}")
    if tensor.numel() > 1 and 0 in tensor.stride():
        raise ValueError(f"tensor is expanded: {tensor.stride()}")


def _merge(total, other, op):
    if op == dist.ReduceOp.MAX:
        return torch.maximum(total, other)
    if op == dist.ReduceOp.MIN:
        return torch.minimum(total, other)
    return total * other if op == dist.ReduceOp.PRODUCT else total + other
