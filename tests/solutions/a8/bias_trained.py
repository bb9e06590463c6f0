"""The bias is a parameter."""

import torch
from torch import nn

from .router import BiasBalancedRouter as Solved

TASK = "a8.BiasBalancedRouter"
EXPECT = {
    "status": "failed",
    "check": "chooses with the bias",
    "cause": "the bias is a parameter",
}


class BiasBalancedRouter(Solved):
    def __init__(self, num_experts, k, gamma=1e-3):
        super().__init__(num_experts, k, gamma)
        del self.bias
        self.bias = nn.Parameter(torch.zeros(num_experts))

    def update(self, expert_counts, group=None):
        with torch.no_grad():
            super().update(expert_counts, group)
