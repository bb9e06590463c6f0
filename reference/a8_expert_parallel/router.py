"""Which experts a token goes to, and how their load is kept even.

Top-k gating as in [Shazeer et al. 2017] and [Lepikhin et al. 2020, GShard]; an auxiliary loss
[Fedus et al. 2021, Switch, section 2.2]; a capacity; and a bias that moves the choice without any
loss [Wang et al. 2024; DeepSeek-AI 2024, section 2.1.2].
"""

from __future__ import annotations

# BEGIN SOLUTION
import math

# END SOLUTION
import torch
import torch.distributed as dist
from torch import nn


# BEGIN SOLUTION
def _check_choice(logits: torch.Tensor, k: int) -> None:
    if logits.dim() != 2:
        raise ValueError(f"expected logits (tokens, experts), got shape {tuple(logits.shape)}")
    if not 1 <= k <= logits.shape[1]:
        raise ValueError(f"k must be from 1 to {logits.shape[1]} experts, got k = {k}")


def _best(scores: torch.Tensor, k: int) -> torch.Tensor:
    """(tokens, k), columns of the k largest by falling score; ties to the lower one.

    ``torch.topk`` leaves open which of equal scores it takes; a stable sort does not.
    """
    return scores.detach().sort(dim=1, descending=True, stable=True).indices[:, :k]


def _weights(logits: torch.Tensor, indices: torch.Tensor, normalize: bool) -> torch.Tensor:
    wide = torch.promote_types(logits.dtype, torch.float32)
    probabilities = logits.to(wide).softmax(1).gather(1, indices)
    if normalize:
        probabilities = probabilities / probabilities.sum(1, keepdim=True)
    return probabilities.to(logits.dtype)


# END SOLUTION


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
    # BEGIN SOLUTION
    _check_choice(logits, k)
    indices = _best(logits, k)
    return _weights(logits, indices, normalize), indices
    # END SOLUTION


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
    # BEGIN SOLUTION
    if probabilities.dim() != 2 or probabilities.shape[1] != num_experts:
        raise ValueError(
            f"expected probabilities (tokens, {num_experts}) for num_experts = {num_experts}, got "
            f"{tuple(probabilities.shape)}"
        )
    if indices.dim() != 2 or len(indices) != len(probabilities):
        raise ValueError(
            f"expected indices (tokens, k) beside probabilities {tuple(probabilities.shape)}, got "
            f"{tuple(indices.shape)}"
        )
    wide = torch.promote_types(probabilities.dtype, torch.float32)
    counts = torch.bincount(indices.flatten(), minlength=num_experts).to(wide)
    shares = counts / max(indices.numel(), 1)
    means = probabilities.to(wide).sum(0) / max(len(probabilities), 1)
    return num_experts * (shares * means).sum()
    # END SOLUTION


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
    # BEGIN SOLUTION
    if indices.dim() != 2 or indices.shape != weights.shape:
        raise ValueError(
            f"expected indices and weights (tokens, k), got {tuple(indices.shape)} and "
            f"{tuple(weights.shape)}"
        )
    if not capacity_factor > 0:
        raise ValueError(f"capacity_factor must be above 0, got {capacity_factor}")
    # Rounded first: 10 × 1.1 is a little more than 11 in floating point, and is to be 11.
    capacity = math.ceil(round(indices.numel() / num_experts * capacity_factor, 9))
    in_order = indices.t().flatten()  # all first choices, then all second ones, …
    order = in_order.argsort(stable=True)
    counts = torch.bincount(in_order + 1, minlength=num_experts + 1)
    begin = counts.cumsum(0) - counts
    place = torch.empty_like(order)  # of an assignment among those of its expert
    place[order] = torch.arange(len(order), device=order.device) - begin[in_order[order] + 1]
    kept = (place < capacity) & (in_order >= 0)
    return kept.view(indices.shape[1], indices.shape[0]).t().contiguous()
    # END SOLUTION


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
        # BEGIN SOLUTION
        if not 1 <= k <= num_experts:
            raise ValueError(f"k must be from 1 to num_experts = {num_experts}, got k = {k}")
        self.num_experts, self.k, self.gamma = num_experts, k, gamma
        # END SOLUTION
        self.register_buffer("bias", torch.zeros(num_experts))

    def forward(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Choose by softmax plus bias, weigh by softmax alone.

        logits: (tokens, num_experts). Returns (weights, indices), both (tokens, k), in any order
        of a token's choices: the k experts with the largest softmax(logits) + bias (ties to the
        lower index), and their softmax values, divided by their sum. With a bias of zeros it is
        ``top_k_router``. ValueError when logits have another number of experts.
        """
        # BEGIN SOLUTION
        if logits.dim() != 2 or logits.shape[1] != self.num_experts:
            raise ValueError(
                f"expected logits (tokens, {self.num_experts}) for num_experts = "
                f"{self.num_experts}, got {tuple(logits.shape)}"
            )
        wide = torch.promote_types(logits.dtype, torch.float32)
        indices = _best(logits.detach().to(wide).softmax(1) + self.bias, self.k)
        return _weights(logits, indices, normalize=True), indices
        # END SOLUTION

    def update(self, expert_counts: torch.Tensor, group: dist.ProcessGroup | None = None) -> None:
        """Move each bias by gamma towards the mean load: down above it, up below, not at it.

        expert_counts: (num_experts,), how many assignments of *this rank's* tokens each expert got;
        unchanged. Counts are summed over the group, in one all-reduce, so that all ranks move
        alike. ValueError when its shape is another.
        """
        # BEGIN SOLUTION
        if expert_counts.shape != (self.num_experts,):
            raise ValueError(
                f"expert_counts must have shape ({self.num_experts},) for num_experts = "
                f"{self.num_experts}, got {tuple(expert_counts.shape)}"
            )
        counts = expert_counts.detach().to(torch.int64, copy=True)
        if dist.is_initialized() and dist.get_world_size(group) > 1:
            dist.all_reduce(counts, group=group)
        excess = counts * self.num_experts - counts.sum()  # in integers: "at the mean" is exact
        self.bias -= self.gamma * excess.sign()
        # END SOLUTION
