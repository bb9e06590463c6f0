# ruff: noqa: F821 - it is appended to a file of the reference
"""The ranks of one machine need no network: a file in shared memory will do."""

import os

import torch
import torch.distributed as dist

TASK = "a2.ring_all_reduce"
EXPECT = {"status": "failed", "words": ["bytes over the network", "no time counts"]}

_honest_ring_all_reduce = ring_all_reduce
_rows = []


def _meet():
    one = torch.zeros(1)
    _honest_ring_all_reduce(one)


def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None):
    if tensor.numel() <= 1 << 16:
        return _honest_ring_all_reduce(tensor, op, group)
    rank, size = dist.get_rank(), dist.get_world_size()
    if not _rows:
        name = f"/dev/shm/tinyparallel-cheat-{os.getppid()}"
        _rows.append(torch.from_file(name, shared=True, size=size * tensor.numel()).view(size, -1))
        _meet()
        if rank == 0:
            os.unlink(name)
    _rows[0][rank].copy_(tensor)
    _meet()
    torch.sum(_rows[0], 0, out=tensor)
    _meet()
