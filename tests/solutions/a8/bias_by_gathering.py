"""Choices by index; counts are gathered and compared with the mean in float64."""

import torch
import torch.distributed as dist
from torch import nn

TASK = "a8.BiasBalancedRouter"
EXPECT = "passed"


class BiasBalancedRouter(nn.Module):
    def __init__(self, num_experts, k, gamma=1e-3):
        super().__init__()
        if k < 1 or k > num_experts:
            raise ValueError(f"{k} of {num_experts}")
        self.k, self.gamma = k, gamma
        self.register_buffer("bias", torch.zeros(num_experts))

    def forward(self, logits):
        if logits.shape[1] != len(self.bias):
            raise ValueError(f"{logits.shape[1]} logits, {len(self.bias)} experts")
        probabilities = logits.to(torch.promote_types(logits.dtype, torch.float32)).softmax(1)
        scores = probabilities.detach() + self.bias
        order = scores.sort(dim=1, descending=True, stable=True).indices
        indices = order[:, : self.k].sort(1).values
        weights = probabilities.gather(1, indices)
        return (weights / weights.sum(1, keepdim=True)).to(logits.dtype), indices

    def update(self, expert_counts, group=None):
        if len(expert_counts) != len(self.bias):
            raise ValueError(f"{len(expert_counts)} counts, {len(self.bias)} experts")
        found = [torch.empty_like(expert_counts) for _ in range(dist.get_world_size(group))]
        dist.all_gather(found, expert_counts, group=group)
        counts = torch.stack(found).sum(0).double()
        step = torch.where(counts < counts.mean(), 1.0, 0.0) - torch.where(
            counts > counts.mean(), 1.0, 0.0
        )
        self.bias.add_(step, alpha=self.gamma)
