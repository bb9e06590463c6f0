"""Gradients are all-reduced, and each rank takes its shard of the whole."""

import torch.distributed as library

TASK = "a3.FullyShardedDataParallel"
EXPECT = {
    "status": "failed",
    "check": "two gathers and a reduce-scatter",
    "cause": "all-reduced, not reduce-scattered",
}


class _Slice:
    def __init__(self, work, output, whole, rank):
        self.work, self.output, self.whole, self.rank = work, output, whole, rank

    def wait(self):
        self.work.wait()
        self.output.copy_(self.whole.view(-1, self.output.numel())[self.rank])


class _Dist:
    def __getattr__(self, name):
        return getattr(library, name)

    @staticmethod
    def reduce_scatter_tensor(output, whole, group=None, async_op=False):
        work = library.all_reduce(whole, group=group, async_op=True)
        return _Slice(work, output, whole, library.get_rank(group))


dist = _Dist()
