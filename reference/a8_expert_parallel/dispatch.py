"""Tokens to their experts, and back [Shazeer et al. 2017; Lepikhin et al. 2020; DeepSeek-AI 2024].

Rank r of n owns experts r·E/n … (r + 1)·E/n − 1. A token crosses to a rank once, however many of
its experts live there; there it is copied for each of them. On the way back the rank adds up
its experts' results for the token, weighted, and sends one row:

    source rank                              rank of the experts
    tokens (T, hidden)
      │ permute by rank                      pairs (received, hidden)
      └─► pairs ──────── all-to-all ──────►    │ permute by expert
                                               └─► rows ─► experts ─► rows
                                             pairs ◄─ weighted sum ─────┘
      pairs ◄─────────── all-to-all ───────────┘
      │ sum
      └─► out (T, hidden)

A pair is a token and a rank that has at least one of its experts. What must be known before
anything is received is exchanged first: how many pairs come from each rank.
``group=None`` is the default group; in a group of one rank nothing is sent.
"""

from __future__ import annotations

# BEGIN SOLUTION
from dataclasses import dataclass
from typing import Any

# END SOLUTION
import torch
import torch.distributed as dist

# BEGIN SOLUTION
import kernels

# END SOLUTION
from .given import Dispatched

# BEGIN SOLUTION
Group = dist.ProcessGroup | None


def _permuted(
    tokens: torch.Tensor, bins: torch.Tensor, num_bins: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(rows, position, counts) as the kernels' ``moe_permute``; bins: (tokens, k) int32, -1: no."""
    fused = kernels.usable(__file__, tokens)
    if fused is not None:
        return fused.moe_permute(tokens, bins.contiguous(), num_bins)
    flat = bins.flatten()
    counts = torch.bincount(flat + 1, minlength=num_bins + 1)
    order = torch.argsort(flat, stable=True)[int(counts[0]) :]
    position = torch.full_like(flat, -1)
    position[order] = torch.arange(len(order), dtype=torch.int32, device=flat.device)
    return (
        tokens.index_select(0, order // max(bins.shape[1], 1)),
        position.view_as(bins),
        counts[1:],
    )


def _unpermuted(
    rows: torch.Tensor, weights: torch.Tensor | None, position: torch.Tensor
) -> torch.Tensor:
    """(tokens, hidden), the (weighted) sum of each token's rows, as ``moe_unpermute``.

    Summed in float32 or wider, rounded once.
    """
    fused = kernels.usable(__file__, rows)
    if fused is not None:
        shares = torch.ones_like(position) if weights is None else weights
        return fused.moe_unpermute(rows, shares.float().contiguous(), position.contiguous())
    wide = torch.promote_types(rows.dtype, torch.float32)
    sums = rows.new_zeros((position.shape[0], rows.shape[1]), dtype=wide)
    for choice in range(position.shape[1]):
        here = (position[:, choice] >= 0).nonzero().squeeze(1)
        found = rows[position[here, choice]].to(wide)
        if weights is not None:
            found = found * weights[here, choice, None]
        sums.index_add_(0, here, found.to(wide))
    return sums.to(rows.dtype)


class _Permute(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tokens: torch.Tensor, bins: torch.Tensor, num_bins: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        rows, position, counts = _permuted(tokens, bins, num_bins)
        ctx.save_for_backward(position)
        ctx.mark_non_differentiable(position, counts)
        return rows, position, counts

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, *_: Any) -> tuple[torch.Tensor, None, None]:
        (position,) = ctx.saved_tensors
        return _unpermuted(gradient, None, position), None, None


class _Unpermute(torch.autograd.Function):
    """The inverse: each token's rows, weighted (weights: (tokens, k)) and added up."""

    @staticmethod
    def forward(
        ctx: Any, rows: torch.Tensor, weights: torch.Tensor | None, position: torch.Tensor
    ) -> torch.Tensor:
        ctx.save_for_backward(rows, weights, position)
        return _unpermuted(rows, weights, position)

    @staticmethod
    def backward(
        ctx: Any, gradient: torch.Tensor
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, None]:
        rows, weights, position = ctx.saved_tensors
        tokens, choices = (position >= 0).nonzero(as_tuple=True)
        places = position[tokens, choices].long()
        shares = gradient[tokens]  # of each row, in the order of `tokens`
        grad_rows = grad_weights = None
        if ctx.needs_input_grad[0]:
            grad_rows = torch.zeros_like(rows)
            grad_rows[places] = (
                shares if weights is None else shares * weights[tokens, choices, None]
            ).to(rows.dtype)
        if weights is not None and ctx.needs_input_grad[1]:
            wide = torch.promote_types(rows.dtype, torch.float32)
            products = (shares.to(wide) * rows[places].to(wide)).sum(1)
            grad_weights = torch.zeros_like(weights)
            grad_weights[tokens, choices] = products.to(weights.dtype)
        return grad_rows, grad_weights, None


def _exchange_started(
    tensor: torch.Tensor, sent: list[int], received: list[int], group: Group
) -> tuple[torch.Tensor, dist.Work | None]:
    """All-to-all of rows: ``sent[i]`` of them to rank i, ``received[i]`` from it.

    The result is valid after the work's ``wait()``.
    """
    if dist.get_world_size(group) == 1:
        return tensor, None
    output = tensor.new_empty((sum(received), *tensor.shape[1:]))
    work = dist.all_to_all_single(
        output, tensor.contiguous(), received, sent, group=group, async_op=True
    )
    return output, work


def _exchanged(
    tensor: torch.Tensor, sent: list[int], received: list[int], group: Group
) -> torch.Tensor:
    output, work = _exchange_started(tensor, sent, received, group)
    if work is not None:
        work.wait()
    return output


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, sent: list[int], received: list[int], group: Group
    ) -> torch.Tensor:
        ctx.route = received, sent, group
        output = _exchanged(tensor, sent, received, group)
        return tensor.view_as(tensor) if output is tensor else output

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        received, sent, group = ctx.route
        return _exchanged(gradient, received, sent, group), None, None, None


@dataclass
class _Route:
    """The way of the tokens, for the way back."""

    bins: torch.Tensor  # (tokens, k) int32: the rank a choice sends to, -1 if an earlier one does
    pairs: torch.Tensor  # (tokens, k) int32: this token's rows among the pairs sent, or -1
    rows: torch.Tensor  # (received pairs, k) int32: this pair's rows of expert output, or -1
    sent: list[int]  # pairs to each rank
    received: list[int]  # pairs from each rank


def _check(tokens: torch.Tensor, indices: torch.Tensor, num_experts: int, size: int) -> None:
    if num_experts < 1 or num_experts % size:
        raise ValueError(f"num_experts = {num_experts} cannot be shared equally by {size} ranks")
    if tokens.dim() != 2 or indices.dim() != 2 or len(tokens) != len(indices):
        raise ValueError(
            f"expected tokens (tokens, hidden) and indices (tokens, k), got "
            f"{tuple(tokens.shape)} and {tuple(indices.shape)}"
        )
    if indices.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"indices must be int64 or int32, got {indices.dtype}")
    if indices.numel():
        low, high = (int(bound) for bound in indices.aminmax())
        if low < -1 or high >= num_experts:
            wrong = low if low < -1 else high
            raise ValueError(
                f"indices must be from -1 to {num_experts - 1} for num_experts = {num_experts}, "
                f"got {wrong}"
            )


# END SOLUTION


def dispatch(
    tokens: torch.Tensor,
    indices: torch.Tensor,
    num_experts: int,
    group: dist.ProcessGroup | None = None,
) -> Dispatched:
    """Send each token to the ranks that own its experts.

    Args:
        tokens: ``(tokens, hidden)``, floating point; ranks may have different numbers of tokens,
            also none. Unchanged.
        indices: ``(tokens, k)`` int64 or int32, the experts of each token, all different; -1 is
            a choice that was dropped and goes nowhere. k is the same on all ranks.
        num_experts: E, of all ranks together.
        group: n ranks; rank r of the group owns experts r·E/n … (r + 1)·E/n − 1.

    Returns:
        ``Dispatched``: tokens in the order of local expert, then source rank, then token. Counts
        are exchanged first, then each token goes once to each rank that has at least one of its
        experts, by an uneven all-to-all. Backward sends one gradient per token and rank back;
        ``tokens`` gets the sum.

    Raises:
        ValueError: n does not divide num_experts; shapes do not fit; an index is not in −1 … E − 1.
            The message names both values, and nothing has been sent.
    """
    # BEGIN SOLUTION
    size = dist.get_world_size(group)
    _check(tokens, indices, num_experts, size)
    per_rank = num_experts // size
    experts = indices.to(torch.int32)
    owner = experts.div(per_rank, rounding_mode="floor")  # -1 stays -1
    again = (owner.unsqueeze(2) == owner.unsqueeze(1)).tril(-1).any(2)
    bins = owner.masked_fill(again, -1)
    outgoing, pairs, counts = _Permute.apply(tokens, bins, size)

    # What a pair's rank must know: which of its experts the token chose, by choice.
    wanted = experts.new_full((len(outgoing), experts.shape[1]), -1)
    token, choice = (pairs >= 0).nonzero(as_tuple=True)
    local = experts[token] - owner[token, choice, None] * per_rank
    local[(local < 0) | (local >= per_rank)] = -1
    wanted[pairs[token, choice].long()] = local

    counts = counts.to(torch.int64)
    arriving = counts
    if size > 1:
        arriving = torch.empty_like(counts)
        dist.all_to_all_single(arriving, counts, group=group)
    sent, received = counts.tolist(), arriving.tolist()
    chosen, work = _exchange_started(wanted, sent, received, group)
    incoming = _Exchange.apply(outgoing, sent, received, group)
    if work is not None:
        work.wait()
    rows, places, expert_counts = _Permute.apply(incoming, chosen, per_rank)
    route = _Route(bins, pairs, places, sent, received)
    return Dispatched(rows, expert_counts.to(torch.int64), route)
    # END SOLUTION


def combine(
    expert_output: torch.Tensor,
    weights: torch.Tensor,
    dispatched: Dispatched,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """Bring the experts' results back to their tokens, weighted and added up.

    Args:
        expert_output: ``(rows, hidden)``, floating point, in the order of ``dispatched.tokens``.
        weights: ``(tokens, k)``, floating point, of this rank's tokens, as ``indices`` was.
            Weights of dropped choices are not looked at.
        dispatched: what ``dispatch`` returned on this rank.
        group: the same as there.

    Returns:
        ``(tokens, hidden)``, expert_output's dtype, in the order that the tokens had before: the
        sum over a token's choices of weight times result, summed in float32 or wider; zeros
        for a token without one. The rank of the experts adds up what it has for a token (for
        this the weights travel to it), so one row per token and rank comes back. Backward: one
        gradient per token and rank goes out, and the gradients of the weights come back.

    Raises:
        ValueError: weights or expert_output do not have the shape that ``dispatched`` asks for.
            The message names both, and nothing has been sent.
    """
    # BEGIN SOLUTION
    route: _Route = dispatched.state
    if weights.shape != route.bins.shape:
        raise ValueError(
            f"weights must have the shape of indices, {tuple(route.bins.shape)}, got "
            f"{tuple(weights.shape)}"
        )
    rows = len(dispatched.tokens)
    if expert_output.dim() != 2 or len(expert_output) != rows:
        raise ValueError(
            f"expert_output must have {rows} rows, as dispatched.tokens, got "
            f"{tuple(expert_output.shape)}"
        )
    shares, _, _ = _Permute.apply(weights, route.bins, len(route.sent))
    shares = _Exchange.apply(shares, route.sent, route.received, group)
    partial = _Unpermute.apply(expert_output, shares, route.rows)
    returned = _Exchange.apply(partial, route.received, route.sent, group)
    combined: torch.Tensor = _Unpermute.apply(returned, None, route.pairs)
    return combined
    # END SOLUTION
