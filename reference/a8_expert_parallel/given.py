"""Given: what `dispatch` returns, an expert, and a gate around your router."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

#: (tokens, experts) logits to (weights, indices), both (tokens, k).
Choose = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


@dataclass
class Dispatched:
    """What arrived at this rank's experts.

    tokens: (rows, hidden), a row for each token and each of this rank's experts that it chose;
        ordered by local expert, then source rank (of the group), then token of that rank.
    expert_counts: (experts of this rank,) int64, rows of each; they sum to rows.
    state: whatever your ``combine`` needs to find the way back; nobody else looks at it.
    """

    tokens: torch.Tensor
    expert_counts: torch.Tensor
    state: Any = None


class Expert(nn.Module):
    """A feed-forward layer: ``(tokens, hidden)`` to ``(tokens, hidden)``."""

    def __init__(self, hidden: int, intermediate: int) -> None:
        super().__init__()
        self.up = nn.Linear(hidden, intermediate)
        self.down = nn.Linear(intermediate, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Also of no tokens at all, whose gradients are then zeros."""
        down: torch.Tensor = self.down(F.gelu(self.up(x)))
        return down


class Gate(nn.Module):
    """A router: ``(tokens, hidden)`` to ``(weights, indices)``, both (tokens, k).

    choose: from logits to the result, say ``partial(top_k_router, k=2)`` or a
    ``BiasBalancedRouter``. The logits are computed in the weight's dtype.
    """

    def __init__(self, hidden: int, num_experts: int, choose: Choose) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_experts, hidden))
        nn.init.normal_(self.weight, std=hidden**-0.5)
        self.choose = choose

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Every rank holds the same weight, and routes its own tokens."""
        return self.choose(F.linear(x, self.weight))
