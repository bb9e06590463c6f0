"""Small models in float64, and one process's training that parallel training must reproduce."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import nn

BATCH, WIDTH, CLASSES = 12, 8, 4
Batch = tuple[torch.Tensor, torch.Tensor]


class Block(nn.Module):
    """A residual two-layer perceptron."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, width) to (batch, width)."""
        return x + self.down(torch.relu(self.up(x)))


def small_model(blocks: int = 3, dtype: torch.dtype = torch.float64) -> nn.Sequential:
    """`blocks` blocks and a classifier, the same parameters at every call."""
    torch.manual_seed(42)
    layers: list[nn.Module] = [Block(WIDTH, 2 * WIDTH) for _ in range(blocks)]
    return nn.Sequential(*layers, nn.Linear(WIDTH, CLASSES)).to(dtype)


def batches(steps: int, dtype: torch.dtype = torch.float64) -> Iterator[Batch]:
    """The global batch of each step: (BATCH, WIDTH) inputs and (BATCH,) labels."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        x = torch.randn(BATCH, WIDTH, dtype=torch.float64, generator=generator)
        yield x.to(dtype), torch.randint(CLASSES, (BATCH,), generator=generator)


def shard(batch: Batch, rank: int, ranks: int) -> Batch:
    """A rank's equal part of the global batch."""
    return batch[0].chunk(ranks)[rank], batch[1].chunk(ranks)[rank]


def adam(model: nn.Module) -> torch.optim.Optimizer:
    """An optimizer with state, so that a wrong gradient shows in every later step."""
    return torch.optim.Adam(model.parameters(), lr=0.02)


def train_alone(
    steps: int = 4,
    *,
    make: Callable[[], nn.Module] = small_model,
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] = adam,
) -> tuple[list[float], nn.Module]:
    """Losses of each step, and the model at the end, of one process."""
    model = make()
    steps_of = optimizer(model)
    losses = []
    for x, y in batches(steps):
        steps_of.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        steps_of.step()
        losses.append(loss.item())
    return losses, model
