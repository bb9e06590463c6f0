"""Given: the transformer block on one device, which assignments 4 and 5 cut into shards.

Activations are ``(sequence, batch, hidden)``: the sequence is dimension 0, so that the shards of
sequence parallelism are contiguous. Any dtype; nothing here communicates.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


def dropout(
    tensor: torch.Tensor,
    p: float,
    training: bool = True,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """``F.dropout`` that can draw from a random generator of your own.

    Args:
        tensor: any shape, floating point; unchanged.
        p: probability that an element becomes 0; what is left is divided by 1 − p.
        training: when false, or p is 0, ``tensor`` comes back as it is and nothing is drawn.
        generator: on ``tensor``'s device; ``None`` is the default one.

    Raises:
        ValueError: p outside [0, 1).
    """
    if not 0 <= p < 1:
        raise ValueError(f"p={p}: expected 0 <= p < 1")
    if not training or p == 0:
        return tensor
    kept = torch.empty_like(tensor, memory_format=torch.contiguous_format, requires_grad=False)
    kept.bernoulli_(1 - p, generator=generator)
    return tensor * kept / (1 - p)


def split_heads(tensor: torch.Tensor, head_dim: int) -> torch.Tensor:
    """``(sequence, batch, heads · head_dim)`` as a view ``(batch, heads, sequence, head_dim)``."""
    sequence, batch, width = tensor.shape
    return tensor.view(sequence, batch, width // head_dim, head_dim).permute(1, 2, 0, 3)


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    causal: bool,
    p: float = 0.0,
    training: bool = True,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """Scaled dot-product attention of heads that lie side by side.

    Args:
        query: ``(batch, heads, sequence, head_dim)``.
        key, value: ``(batch, kv_heads, sequence, head_dim)``; ``kv_heads`` divides ``heads``, and
            head i reads key-value head i // (heads / kv_heads) [Ainslie et al. 2023].
        causal: position i sees positions 0 … i only.
        p, training, generator: dropout on the attention probabilities, as in ``dropout``.

    Returns:
        ``(sequence, batch, heads · head_dim)``.
    """
    if training and p > 0:
        groups = query.shape[1] // key.shape[1]
        key, value = (each.repeat_interleave(groups, dim=1) for each in (key, value))
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        if causal:
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
            scores = scores.masked_fill(hidden, float("-inf"))
        out = dropout(scores.softmax(-1), p, training, generator) @ value
    else:
        out = F.scaled_dot_product_attention(query, key, value, is_causal=causal, enable_gqa=True)
    return out.permute(2, 0, 1, 3).flatten(2)


class MLP(nn.Module):
    """``down(gelu(up(x)))``. up: (intermediate, hidden), down: (hidden, intermediate)."""

    def __init__(self, hidden: int, intermediate: int | None = None, bias: bool = True) -> None:
        super().__init__()
        intermediate = 4 * hidden if intermediate is None else intermediate
        self.up = nn.Linear(hidden, intermediate, bias)
        self.down = nn.Linear(intermediate, hidden, bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(sequence, batch, hidden), kept."""
        return self.down(F.gelu(self.up(x)))


class Attention(nn.Module):
    """Self-attention with grouped-query heads.

    heads, kv_heads, head_dim: ``kv_heads`` (default ``heads``) divides ``heads``; ``head_dim``
    defaults to hidden / heads. query: (heads · head_dim, hidden); key and value: (kv_heads ·
    head_dim, hidden); output: (hidden, heads · head_dim). Rows of the first three and columns of
    the last lie head by head. dropout: on the attention probabilities, in training only.
    """

    def __init__(
        self,
        hidden: int,
        heads: int,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        bias: bool = True,
        causal: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.kv_heads = heads if kv_heads is None else kv_heads
        if heads % self.kv_heads:
            raise ValueError(f"heads={heads} is not a multiple of kv_heads={self.kv_heads}")
        self.head_dim = hidden // heads if head_dim is None else head_dim
        self.causal = causal
        self.dropout = dropout
        self.query = nn.Linear(hidden, heads * self.head_dim, bias)
        self.key = nn.Linear(hidden, self.kv_heads * self.head_dim, bias)
        self.value = nn.Linear(hidden, self.kv_heads * self.head_dim, bias)
        self.output = nn.Linear(heads * self.head_dim, hidden, bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(sequence, batch, hidden), kept."""
        query, key, value = (
            split_heads(layer(x), self.head_dim) for layer in (self.query, self.key, self.value)
        )
        return self.output(attend(query, key, value, self.causal, self.dropout, self.training))


class Block(nn.Module):
    """A pre-norm transformer block: x + dropout(attention(norm(x))), then the same with the MLP.

    dropout: on the output of either half; the attention has its own, on its probabilities.
    """

    def __init__(self, hidden: int, attention: Attention, mlp: MLP, dropout: float = 0.0) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(hidden)
        self.attention = attention
        self.mlp_norm = nn.LayerNorm(hidden)
        self.mlp = mlp
        self.dropout = dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(sequence, batch, hidden), kept."""
        x = x + dropout(self.attention(self.attention_norm(x)), self.dropout, self.training)
        return x + dropout(self.mlp(self.mlp_norm(x)), self.dropout, self.training)
