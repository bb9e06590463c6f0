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

import torch
import torch.distributed as dist

from .given import Dispatched


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
    raise NotImplementedError("a8.dispatch")


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
    raise NotImplementedError("a8.combine")
