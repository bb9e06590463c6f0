"""Right: gradients of the copies one parameter at a time, the lower rank first."""

import torch
import torch.distributed as dist

from .executor import _Copies
from .executor import run_dualpipe as right

TASK = "a7.run_dualpipe"
EXPECT = "passed"


def run_dualpipe(schedule, stages, inputs, targets, loss_fn, group=None):
    return right(schedule, stages, inputs, targets, loss_fn, group)


def _one_by_one(self, tensors, other):
    received = []
    for tensor in tensors:
        mine, theirs = tensor.contiguous().clone(), torch.empty_like(tensor)
        if self._rank < other:
            dist.send(mine, group=self._group, group_dst=other)
        dist.recv(theirs, group=self._group, group_src=other)
        if self._rank > other:
            dist.send(mine, group=self._group, group_dst=other)
        received.append(theirs)
    return received


_Copies._exchange = _one_by_one
