"""Right: all segments of one step, then those of the next; the textbook's pipeline."""

import torch
import torch.distributed as dist

TASK = "a2.pipelined_ring_all_reduce"
EXPECT = "passed"


def pipelined_ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, segment_bytes=1 << 20):
    _check(tensor, op)
    _check_segment(segment_bytes)
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    flat = tensor.contiguous().view(-1)
    most = max(1, segment_bytes // flat.element_size())
    parts = [chunk.split(most) for chunk in flat.tensor_split(size)]

    def post(step, j):
        send, receive = parts[(rank - 1 - step) % size], parts[(rank - 2 - step) % size]
        calls, room = [], None
        if j < len(send) and send[j].numel():
            calls.append(dist.P2POp(dist.isend, send[j], group=group, group_peer=(rank + 1) % size))
        if j < len(receive) and receive[j].numel():
            room = torch.empty_like(receive[j]) if step < size - 1 else receive[j]
            calls.append(dist.P2POp(dist.irecv, room, group=group, group_peer=(rank - 1) % size))
        return room, dist.batch_isend_irecv(calls) if calls else []

    if size > 1:
        count = max(map(len, parts))
        posted = [post(0, j) for j in range(count)]
        for step in range(2 * size - 2):
            for j in range(count):
                room, works = posted[j]
                for work in works:
                    work.wait()
                if room is not None and step < size - 1:
                    mine = parts[(rank - 2 - step) % size][j]
                    if op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
                        mine += room
                    else:
                        mine.copy_(_merge(mine, room, op))
                    if step == size - 2 and op == dist.ReduceOp.AVG:
                        mine /= size
                if step < 2 * size - 3:
                    posted[j] = post(step + 1, j)
    if not tensor.is_contiguous():
        tensor.copy_(flat.view(tensor.shape))


def _check(tensor, op):
    names = [name for name in ("SUM", "AVG", "MAX", "MIN", "PRODUCT")]
    if op not in [getattr(dist.ReduceOp, name) for name in names]:
        raise ValueError(f"op={op} is none of {names}")
    if op == dist.ReduceOp.AVG and not (tensor.is_floating_point() or tensor.is_complex()):
        raise ValueError(f"op={op} does not go with {tensor.dtype}")
    if any(n > 1 and s == 0 for n, s in zip(tensor.shape, tensor.stride())):
        raise ValueError(f"tensor is expanded: {tensor.stride()}")


def _check_segment(segment_bytes):
    if segment_bytes < 1:
        raise ValueError(f"segment_bytes={segment_bytes}, expected 1 or more")


def _merge(total, other, op):
    if op == dist.ReduceOp.MAX:
        return torch.maximum(total, other)
    if op == dist.ReduceOp.MIN:
        return torch.minimum(total, other)
    return total * other if op == dist.ReduceOp.PRODUCT else total + other
