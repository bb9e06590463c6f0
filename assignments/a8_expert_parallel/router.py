"""Which experts a token goes to, and how their load is kept even.

Top-k gating as in [Shazeer et al. 2017] and [Lepikhin et al. 2020, GShard]; an auxiliary loss
[Fedus et al. 2021, Switch, section 2.2]; a capacity; and a bias that moves the choice without any
loss [Wang et al. 2024; DeepSeek-AI 2024, section 2.1.2].
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn


def top_k_router(
    logits: torch.Tensor, k: int, normalize: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """The k best experts of each token and their weights.

    Args:
        logits: ``(tokens, experts)``, floating point; the softmax of 16-bit logits is computed
            in float32.
        k: 1 … experts.
        normalize: the weights of a token sum to 1; otherwise they are the softmax's values.

    Returns:
        ``(weights, indices)``, both (tokens, k), weights of logits' dtype and differentiable,
        indices int64; by falling weight, of equal ones the lower index first (and rather chosen).

    Raises:
        ValueError: k is not in 1 … experts; the message names both.
    """
    raise NotImplementedError("a8.top_k_router")


def load_balancing_loss(
    probabilities: torch.Tensor, indices: torch.Tensor, num_experts: int
) -> torch.Tensor:
    """Switch's auxiliary loss, E · Σ fᵢ Pᵢ, smallest when the load is even.

    Args:
        probabilities: ``(tokens, E)``, the router's softmax over all experts.
        indices: ``(tokens, k)``, the experts chosen, all k of which count.
        num_experts: E.

    Returns:
        A scalar, float32 or wider: fᵢ is the share of all assignments that expert i got (they sum
        to 1; no gradient), Pᵢ the mean of its probability (its gradient is the loss's). 1.0 when
        both are uniform, 0 without tokens. Of this rank's tokens; the factor α is the caller's.

    Raises:
        ValueError: shapes do not fit each other or num_experts; the message names both.
    """
    raise NotImplementedError("a8.load_balancing_loss")


def apply_capacity(
    indices: torch.Tensor, weights: torch.Tensor, num_experts: int, capacity_factor: float
) -> torch.Tensor:
    """Which assignments an expert of limited capacity takes.

    Args:
        indices: ``(tokens, k)`` int64, a token's first choice in column 0; -1 is no choice.
        weights: ``(tokens, k)``, of the same assignments, by falling weight. The order of columns
            and tokens decides, not the weights' values.
        num_experts: E.
        capacity_factor: an expert takes ⌈k · tokens / E × capacity_factor⌉ assignments.

    Returns:
        bool (tokens, k), True where kept: an expert takes first choices of all tokens before
        second ones, and so on, and of the same choice tokens in their order.

    Raises:
        ValueError: shapes differ (the message names both), or capacity_factor is not positive.
    """
    raise NotImplementedError("a8.apply_capacity")


class BiasBalancedRouter(nn.Module):
    """Top-k with a bias per expert that evens the load without a loss [Wang et al. 2024].

    Attributes: ``bias`` (num_experts,) float32, a buffer, at first zeros.
    """

    bias: torch.Tensor

    def __init__(self, num_experts: int, k: int, gamma: float = 1e-3) -> None:
        """k experts of num_experts for each token; gamma: what an update adds or takes away.

        Raises:
            ValueError: k is not in 1 … num_experts; the message names both.
        """
        super().__init__()
        raise NotImplementedError("a8.BiasBalancedRouter")
        self.register_buffer("bias", torch.zeros(num_experts))

    def forward(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Choose by softmax plus bias, weigh by softmax alone.

        logits: (tokens, num_experts). Returns (weights, indices), both (tokens, k), in any order
        of a token's choices: the k experts with the largest softmax(logits) + bias (ties to the
        lower index), and their softmax values, divided by their sum. With a bias of zeros it is
        ``top_k_router``. ValueError when logits have another number of experts.
        """
        raise NotImplementedError("a8.BiasBalancedRouter")

    def update(self, expert_counts: torch.Tensor, group: dist.ProcessGroup | None = None) -> None:
        """Move each bias by gamma towards the mean load: down above it, up below, not at it.

        expert_counts: (num_experts,), how many assignments of *this rank's* tokens each expert got;
        unchanged. Counts are summed over the group, in one all-reduce, so that all ranks move
        alike. ValueError when its shape is another.
        """
        raise NotImplementedError("a8.BiasBalancedRouter")
