"""Given: a small byte-level GPT on one device, layer by layer.

Layer 0 embeds bytes and positions, layers 1 … L are pre-norm blocks (of assignment 4), layer L + 1
is the last norm and the head. Activations are ``(sequence, batch, hidden)``. Every layer is drawn
from a seed of its own: a rank builds only those that it needs, and all ranks agree on them.
"""

from __future__ import annotations

import torch
from torch import nn

from ..a4_tensor_parallel.dense import MLP, Attention, Block
from .config import DTYPES, VOCABULARY, TrainConfig


class Embedding(nn.Module):
    """Bytes and learned positions. tokens.weight (256, hidden), positions (sequence, hidden)."""

    def __init__(self, sequence: int, hidden: int) -> None:
        super().__init__()
        self.tokens: nn.Module = nn.Embedding(VOCABULARY, hidden)
        self.positions = nn.Parameter(torch.randn(sequence, hidden) / 10)

    def forward(self, bytes_: torch.Tensor) -> torch.Tensor:
        """(sequence, batch) int64 to (sequence, batch, hidden)."""
        return self.tokens(bytes_) + self.positions[: len(bytes_)].unsqueeze(1)


class Head(nn.Module):
    """The last norm and the logits. output.weight (256, hidden), not shared with the embedding."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm: nn.Module = nn.LayerNorm(hidden)
        self.output: nn.Module = nn.Linear(hidden, VOCABULARY, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(sequence, batch, hidden) to (sequence, batch, 256)."""
        return self.output(self.norm(x))


class MoE(nn.Module):
    """A mixture of experts on one device: every expert computes every token, most weights are 0.

    router.weight (experts, hidden); experts: MLPs of width 2 · hidden.
    """

    def __init__(self, hidden: int, experts: int, top_k: int) -> None:
        super().__init__()
        self.router = nn.Linear(hidden, experts, bias=False)
        self.experts = nn.ModuleList(MLP(hidden, 2 * hidden) for _ in range(experts))
        self.top_k = top_k

    def gate(self, x: torch.Tensor) -> torch.Tensor:
        """Weights (…, experts) that sum to 1: the softmax of the top_k best, 0 for the others."""
        scores = self.router(x)
        least = scores.detach().kthvalue(scores.shape[-1] - self.top_k + 1, keepdim=True).values
        return scores.masked_fill(scores < least, float("-inf")).softmax(-1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(…, hidden), kept."""
        weights = self.gate(x).unbind(-1)
        results = [w.unsqueeze(-1) * e(x) for w, e in zip(weights, self.experts, strict=True)]
        return torch.stack(results).sum(0)


def build_layer(config: TrainConfig, number: int) -> nn.Module:
    """Layer `number` of 0 … layers + 1, dense, in the configuration's dtype, on the CPU.

    The same on every rank and in every layout; the caller's random generator stays untouched.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed * 1_000_003 + number)
        if number == 0:
            layer: nn.Module = Embedding(config.sequence, config.hidden)
        elif number == config.layers + 1:
            layer = Head(config.hidden)
        else:
            layer = Block(config.hidden, Attention(config.hidden, config.heads), MLP(config.hidden))
            if config.experts:
                layer.mlp = MoE(config.hidden, config.experts, config.top_k)
    return layer.to(DTYPES[config.dtype])


def build_model(config: TrainConfig) -> nn.Sequential:
    """The whole model on one device."""
    return nn.Sequential(*(build_layer(config, number) for number in range(config.layers + 2)))


def layer_flops(config: TrainConfig) -> list[float]:
    """FLOPs per token of each layer, forward and backward, without what is computed twice.

    6 per weight that multiplies the token, and 12·s·h for a block's attention scores (all of them,
    also those that the causal mask hides) [Narayanan et al. 2021].
    """
    hidden, sequence = config.hidden, config.sequence
    mlp = 2 * hidden * 4 * hidden
    if config.experts:
        mlp = hidden * config.experts + config.top_k * 2 * hidden * 2 * hidden
    block = 6.0 * (4 * hidden * hidden + mlp) + 12.0 * sequence * hidden
    return [0.0, *([block] * config.layers), 6.0 * hidden * VOCABULARY]
