"""Models whose steps are timed: built alike by timed drivers and by the examiner."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import nn
from torch.nn import functional as F


class Deep(nn.Module):
    """`layers` linear layers of `width`, each with a residual connection."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(rows, width), kept."""
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return x


class Wide(nn.Module):
    """A stage of a pipeline: `blocks` two-layer perceptrons, four times as wide inside."""

    def __init__(self, blocks: int, width: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            *(
                nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
                for _ in range(blocks)
            )
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(rows, width), kept."""
        y: torch.Tensor = self.blocks(x)
        return y


def flat_gradients(module: nn.Module, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Gradients of the mean square error by all parameters, in their order, in one row."""
    loss = F.mse_loss(module(x), target)
    gradients = torch.autograd.grad(loss, list(module.parameters()))
    return torch.cat([gradient.flatten() for gradient in gradients])


def slices(flat: torch.Tensor, parameters: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Where each parameter's numbers lie in `flat`, in its shape."""
    begin = 0
    for parameter in parameters:
        end = begin + parameter.numel()
        yield flat[begin:end].view(parameter.shape)
        begin = end
