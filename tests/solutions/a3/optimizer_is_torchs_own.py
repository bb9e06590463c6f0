"""torch's own ZeRO-1 under the task's name."""

from torch.distributed.optim import ZeroRedundancyOptimizer

TASK = "a3.ShardedOptimizer"
EXPECT = {
    "status": "failed",
    "check": "steps as the whole optimizer",
    "cause": "torch's own code does the work",
}


class ShardedOptimizer(ZeroRedundancyOptimizer):
    def __init__(self, params, optimizer_class, group=None, **kwargs):
        super().__init__(params, optimizer_class=optimizer_class, process_group=group, **kwargs)
