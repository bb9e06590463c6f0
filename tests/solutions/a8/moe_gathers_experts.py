"""Every rank gathers all experts' parameters and keeps its tokens."""

import torch
import torch.distributed as dist

from .layer import ExpertParallelMoE as Solved

TASK = "a8.ExpertParallelMoE"
EXPECT = {
    "status": "failed",
    "check": "sends each token once to a rank, and one row back",
    "cause": "the experts' weights travel to all ranks",
}


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, parameter, group):
        ctx.group = group
        found = [torch.empty_like(parameter) for _ in range(dist.get_world_size(group))]
        dist.all_gather(found, parameter.detach(), group=group)
        return torch.stack(found)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient[dist.get_rank(ctx.group)], None


class ExpertParallelMoE(Solved):
    def forward(self, x):
        tokens = x.flatten(0, -2)
        weights, indices = self.router(tokens)
        per_rank = len(self.experts)
        out = 0 * tokens
        for local, expert in enumerate(self.experts):
            names = [name for name, _ in expert.named_parameters()]
            whole = [Gather.apply(p, self.group) for p in expert.parameters()]
            for rank in range(dist.get_world_size(self.group)):
                own = {name: value[rank] for name, value in zip(names, whole, strict=True)}
                chosen = (indices == rank * per_rank + local).to(weights.dtype)
                share = (weights * chosen).sum(1, keepdim=True)
                out = out + share * torch.func.functional_call(expert, own, (tokens,))
        return out.view_as(x)
