"""All-reduces the experts' gradients over the EP group."""

import torch.distributed as dist

from .layer import ExpertParallelMoE as Solved

TASK = "a8.ExpertParallelMoE"
EXPECT = {
    "status": "failed",
    "check": "gives experts their gradient",
    "cause": "gradients of different experts are summed",
}


class ExpertParallelMoE(Solved):
    def __init__(self, experts, router, group=None):
        super().__init__(experts, router, group)

        def reduced(gradient):
            gradient = gradient.clone()
            dist.all_reduce(gradient, group=group)
            return gradient

        for parameter in self.experts.parameters():
            parameter.register_hook(reduced)
