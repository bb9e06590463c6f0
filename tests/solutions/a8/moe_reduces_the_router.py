"""Sums the router's gradient itself."""

import torch.distributed as dist

from .layer import ExpertParallelMoE as Solved

TASK = "a8.ExpertParallelMoE"
EXPECT = {
    "status": "failed",
    "check": "gives router and input",
    "cause": "summed over the group",
}


class ExpertParallelMoE(Solved):
    def __init__(self, experts, router, group=None):
        super().__init__(experts, router, group)

        def reduced(gradient):
            gradient = gradient.clone()
            dist.all_reduce(gradient, group=group)
            return gradient

        for parameter in self.router.parameters():
            parameter.register_hook(reduced)
