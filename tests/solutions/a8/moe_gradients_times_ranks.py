"""The experts' gradients grow with the size of the group."""

import torch.distributed as dist

from .layer import ExpertParallelMoE as Solved

TASK = "a8.ExpertParallelMoE"
EXPECT = {
    "status": "failed",
    "check": "gives experts their gradient",
    "cause": "expert gradients grow with the EP size",
}


class ExpertParallelMoE(Solved):
    def __init__(self, experts, router, group=None):
        super().__init__(experts, router, group)
        size = dist.get_world_size(group)
        for parameter in self.experts.parameters():
            parameter.register_hook(lambda gradient: gradient * size)
