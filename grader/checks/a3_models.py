"""The models that assignment 3 trains, and how one process trains them.

Both sides build them from the same spec: the driver around the student's wrapper, the examiner for
what must come out. A spec is plain data: {"name": "mlp", "width": 16, "blocks": 3}.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Spec = Mapping[str, Any]
FEATURES, TARGETS = 5, 3  # columns of every input and target


class Mlp(nn.Module):
    """Linear layers in float64: `stem`, `blocks` with a residual connection, `head`."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.stem = nn.Linear(FEATURES, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = nn.Linear(width, TARGETS)

    def forward(self, inputs: torch.Tensor) -> Any:
        """(batch, FEATURES) to (batch, TARGETS)."""
        hidden = self.stem(inputs)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden)


class Block(nn.Module):
    """One layer with a residual connection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, hidden: torch.Tensor) -> Any:
        """Shape (batch, width), kept."""
        return hidden + torch.tanh(self.linear(hidden))


class Odd(nn.Module):
    """What real models have and simple ones do not.

    A weight that two layers share; frozen parameters; `left` and `right`, used as the second
    argument says; `spare`, never used; a scalar parameter, and one that is not contiguous; buffers
    of several dtypes.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Linear(FEATURES, width)
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)
        self.second.weight = self.first.weight
        self.frozen = nn.Linear(width, width)
        self.frozen.requires_grad_(False)
        self.left = nn.Linear(width, width)
        self.right = nn.Linear(width, width)
        self.spare = nn.Linear(width, width)
        self.turned = nn.Parameter(torch.zeros(width, TARGETS + 2).t())
        self.gain = nn.Parameter(torch.zeros(()))
        self.shift: torch.Tensor
        self.mask: torch.Tensor
        self.register_buffer("shift", torch.zeros(width))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mask", torch.zeros(width, dtype=torch.bool))

    def forward(self, inputs: torch.Tensor, branches: str = "left right") -> Any:
        """(batch, FEATURES) to (batch, TARGETS), through the branches that are named."""
        hidden = torch.tanh(self.stem(inputs)) + self.shift * self.mask
        hidden = hidden + torch.tanh(self.first(hidden))
        hidden = hidden + torch.tanh(self.second(hidden))
        hidden = hidden + torch.tanh(self.frozen(hidden))
        for name in branches.split():
            hidden = hidden + torch.tanh(getattr(self, name)(hidden))
        return F.linear(hidden, self.turned)[:, :TARGETS] * (1 + self.gain)


class Mixed(nn.Module):
    """Parameters of two dtypes: float32 first, float64 after."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Linear(FEATURES, width)
        self.middle = nn.Linear(width, width)
        self.head = nn.Linear(width, TARGETS)

    def forward(self, inputs: torch.Tensor) -> Any:
        """(batch, FEATURES) to (batch, TARGETS)."""
        hidden = torch.tanh(self.stem(inputs.float()))
        return self.head(torch.tanh(self.middle(hidden.double())))


def build(spec: Spec) -> nn.Module:
    """The model of a spec; its parameters are yet to be loaded."""
    if spec["name"] == "mlp":
        return Mlp(spec["width"], spec["blocks"]).double()
    if spec["name"] == "odd":
        model = Odd(spec["width"]).double()
        # `double` makes a new weight for each of the layers, and a contiguous parameter.
        model.second.weight = model.first.weight
        model.turned = nn.Parameter(model.turned.detach().t().contiguous().t())
        return model
    mixed = Mixed(spec["width"]).double()
    mixed.stem.float()
    return mixed


def random_state(spec: Spec, rng: torch.Generator) -> dict[str, torch.Tensor]:
    """A state dict of the model: weights of a size that keeps activations near 1."""
    state = {}
    for name, value in build(spec).state_dict().items():
        if value.dtype.is_floating_point:
            scale = max(value.shape[-1] if value.dim() else 1, 1) ** -0.5
            random = torch.randn(value.shape, generator=rng, dtype=torch.float64)
            state[name] = (random * scale).to(value.dtype)
        else:
            state[name] = torch.randint(0, 2, value.shape, generator=rng).to(value.dtype)
    if "second.weight" in state:
        state["second.weight"] = state["first.weight"]
    return state


def load(model: nn.Module, state: Mapping[str, torch.Tensor]) -> nn.Module:
    """Copy a state dict into the model, whatever its strides; returns the model."""
    with torch.no_grad():
        for name, value in model.state_dict(keep_vars=True).items():
            value.detach().copy_(state[name])
    return model


def loss_of(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean squared error, the loss of every training here."""
    return F.mse_loss(outputs, targets)


class SingleProcess:
    """What training in one process comes to.

    One step's batch is a list by rank of lists of micro-batches (inputs, targets, *more). The loss
    is the mean over the ranks of the means over their micro-batches.
    """

    def __init__(self, spec: Spec, state: Mapping[str, torch.Tensor]) -> None:
        self.model = load(build(spec), state)

    def losses(self, batch: Sequence[Sequence[Sequence[Any]]]) -> list[torch.Tensor]:
        """The loss of each rank's share, with graphs."""
        return [
            torch.stack(
                [
                    loss_of(self.model(inputs, *more), targets)
                    for inputs, targets, *more in micro_batches
                ]
            ).mean()
            for micro_batches in batch
        ]

    def gradients(self, loss: torch.Tensor) -> dict[str, torch.Tensor | None]:
        """Of a loss, by parameter name; None for what is frozen or was not used."""
        named = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        found = torch.autograd.grad(
            loss, list(named.values()), retain_graph=True, allow_unused=True
        )
        return dict(zip(named, found, strict=True))

    def set_gradients(self, gradients: Mapping[str, torch.Tensor | None]) -> None:
        """Put them where an optimizer looks for them."""
        for name, parameter in self.model.named_parameters():
            parameter.grad = gradients.get(name)

    def parameters(self) -> dict[str, torch.Tensor]:
        """Copies of the state dict as it is now."""
        return copy.deepcopy(self.model.state_dict())
