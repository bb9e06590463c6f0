"""Context parallelism: attention over a sequence that no rank holds as a whole.

Keys and values travel around the ring; each rank lets its queries attend to one block after the
other and merges the partial results by their log-sum-exp [Liu et al. 2023; Dao et al. 2022]. With
a causal mask contiguous shares are unbalanced (the last rank attends to everything), so rank i
takes chunks i and 2n − 1 − i of 2n, and every rank has the same work: "zigzag" [Zhu 2024].

    contiguous, n = 4      0 0 1 1 2 2 3 3
    zigzag,     n = 4      0 1 2 3 3 2 1 0        the rank that holds each of 8 chunks
"""

from __future__ import annotations

import torch
import torch.distributed as dist


def merge_attention(
    out_a: torch.Tensor, lse_a: torch.Tensor, out_b: torch.Tensor, lse_b: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Two attentions of the same queries over different keys as one over all of them.

    With lse = log Σ exp(score): lse = log(exp(lse_a) + exp(lse_b)), and the outputs are weighted by
    exp(lse_a − lse) and exp(lse_b − lse) [Dao et al. 2022].

    Args:
        out_a, out_b: ``(…, head_dim)``, the same shape and dtype.
        lse_a, lse_b: ``(…)``, float32 or wider. A side that attended to nothing has lse −inf and
            out 0.

    Returns:
        (out, lse), shapes and dtypes as given. No overflow, whatever the magnitude of lse; where
        neither side attended to anything, lse is −inf and out 0.
    """
    raise NotImplementedError("a5.merge_attention")


def zigzag_shard(
    tensor: torch.Tensor, dim: int, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """This rank's share of a sequence for causal attention: chunks i and 2n − 1 − i of 2n.

    Args:
        tensor: any shape and dtype, the same on all ranks.
        dim: the dimension that is cut; may be negative.
        group: n ranks; i is this one's number in it.

    Returns:
        The two chunks, one after the other along ``dim``, in memory of their own. Nothing is sent.

    Raises:
        ValueError: 2n does not divide the dimension; the message names both numbers.
    """
    raise NotImplementedError("a5.zigzag_shard")


def zigzag_unshard(
    tensor: torch.Tensor, dim: int, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """The whole sequence out of all ranks' zigzag shares, on every rank, by one all-gather.

    Args:
        tensor: this rank's two chunks, as ``zigzag_shard`` gives them; the same shape and dtype on
            all ranks.
        dim: the dimension that was cut; may be negative.
        group: the n ranks that share it.

    Returns:
        The tensor that was cut, n times as long in ``dim``. Outside autograd's graph.

    Raises:
        ValueError: the dimension is odd; the message names it.
    """
    raise NotImplementedError("a5.zigzag_unshard")


def ring_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    layout: str = "zigzag",
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """Attention of this rank's queries to the keys of all ranks, which travel around the ring.

    softmax(q kᵀ / √head_dim) v over the whole sequence. While a block of keys and values is
    attended to, the next is on its way. Blocks that the causal mask hides entirely are not computed
    (they travel on). Forward sends at most n − 1 times this rank's bytes of k and v, backward
    2n − 1 times. A rank never holds more than a constant number of other ranks' blocks, and keeps
    none of them for backward.

    Args:
        q: ``(batch, heads, sequence / n, head_dim)``, floating point: this rank's tokens.
        k, v: ``(batch, kv_heads, sequence / n, head_dim)``; ``kv_heads`` divides ``heads``, and
            head i reads key-value head i // (heads / kv_heads).
        causal: a token sees tokens up to itself only, by their places in the whole sequence.
        layout: which tokens a rank has: "zigzag" as ``zigzag_shard`` cuts, or "contiguous", rank i
            the i-th of n shares. Without ``causal`` both come to the same.
        group: n ranks that share the sequence.

    Returns:
        This rank's part of the output, shape and dtype of ``q``. Differentiable in q, k and v.

    Raises:
        ValueError: another ``layout``; shapes that do not fit; heads no multiple of kv_heads; an
            odd number of tokens for "zigzag" with ``causal``. The message names the values.
    """
    raise NotImplementedError("a5.ring_attention")
