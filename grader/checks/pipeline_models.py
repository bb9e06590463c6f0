"""Stages of models that pipelines are tried on: built alike by drivers and by the examiner."""

from __future__ import annotations

from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import nn

WIDTH = 6


class Perceptron(nn.Module):
    """Two layers and a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.down(torch.tanh(self.up(x)))
        return y


class Block(nn.Module):
    """A transformer block: attention and perceptron, each behind a norm and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.first(x)).unflatten(-1, (3, 2, WIDTH // 2)).unbind(-3)
        scores = torch.einsum("qhd,khd->hqk", q, k) / (WIDTH // 2) ** 0.5
        mixed = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).flatten(-2)
        x = x + self.out(mixed)
        y: torch.Tensor = x + self.mlp(self.second(x))
        return y


class Shared(nn.Module):
    """One layer used three times, once around the others."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.other = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        around = self.layer(x)
        inside = torch.tanh(self.layer(torch.tanh(self.other(x))))
        y: torch.Tensor = around + self.layer(inside) * torch.tanh(self.other.weight.sum())
        return y


class Views(nn.Module):
    """Returns views: a transposed output and the input's first rows, as they came."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.layer(x)
        return y.t(), x[:1], y


class SeveralInputs(nn.Module):
    """Three inputs, one of integers; two outputs, one without a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, WIDTH)
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(
        self, x: torch.Tensor, y: torch.Tensor, index: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self.layer(x) * y + self.table(index), (x > y).long()


class InPlace(nn.Module):
    """Changes its input in place before anything else, as nn.ReLU(inplace=True) does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layer(x.relu_())
        return y.mul_(2.0)


class PartlyFrozen(nn.Module):
    """A frozen layer below a trained one, and a parameter that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.unused = nn.Parameter(torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layer(F.gelu(self.frozen(x)))
        return y


class Carry(nn.Module):
    """Takes and returns two tensors, so that a stage has several of both."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.tanh(self.layer(x))
        return y + memory, memory.flip(0)


class Perceptrons(nn.Module):
    """Bias-free layers: forward, input and weight gradients cost the same FLOPs."""

    def __init__(self, layers: int = 3) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Linear(WIDTH * 8, WIDTH * 8, bias=False) for _ in range(layers))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layers(x)
        return y


class _Builder(Protocol):
    def __call__(self) -> nn.Module: ...


BUILDERS: dict[str, _Builder] = {
    "perceptron": Perceptron,
    "block": Block,
    "shared": Shared,
    "views": Views,
    "several inputs": SeveralInputs,
    "in place": InPlace,
    "partly frozen": PartlyFrozen,
    "no parameters": nn.Tanh,
    "identity": nn.Identity,
    "embedding": lambda: nn.Embedding(5, WIDTH),
    "carry": Carry,
    "perceptrons": Perceptrons,
}


def build(name: str, state: dict[str, Any] | None = None) -> nn.Module:
    """The stage `name` in float64, with these weights."""
    module = BUILDERS[name]().double()
    if state is not None:
        module.load_state_dict(state)
    return module


def random_state(name: str, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Random weights for `build`."""
    return {
        key: torch.randn(value.shape, generator=generator, dtype=torch.float64) * 0.4
        for key, value in build(name).state_dict().items()
    }


def mean_square(output: Any, target: torch.Tensor) -> torch.Tensor:
    """The loss of the pipelines: mean square distance of the (first) output to its target."""
    first = output[0] if isinstance(output, tuple) else output
    loss: torch.Tensor = (first - target).square().mean()
    return loss
