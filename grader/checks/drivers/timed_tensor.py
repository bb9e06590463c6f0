"""Timed drivers around one step of a tensor-parallel MLP or attention, forward and backward.

The buffers "x" and "gradient" (sequence, batch, hidden) are the same on all ranks; results go to
"output", "input_gradient" and "weight_gradient" (of this rank's share of the last weight).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from grader.checks.real_entry import Buffers, RealContext, deliver


def parallel(context: RealContext, given: Any, buffers: Buffers) -> Callable[[], None]:
    """The student's layer. given: task, module ("MLP" or "Attention"), last, options, state."""
    layer_class = context.function(given["task"])
    package = layer_class.__module__.split(".")[0]
    dense = context.call(importlib.import_module, f"{package}.a4_tensor_parallel.dense")
    module = getattr(dense, given["module"])(**given["options"])
    module.load_state_dict(given["state"])
    layer = context.call(layer_class.from_dense, module.to(context.device))
    weight = dict(layer.named_parameters())[given["last"]]
    return _step(context, layer, lambda: weight.grad, buffers, layer.parameters())


def library(context: RealContext, given: Any, buffers: Buffers) -> Callable[[], None]:
    """The same module of the grader's own, cut by `parallelize_module`."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    kinds: dict[str, Any] = {"MLP": _MLP, "Attention": _Attention}
    module = kinds[given["module"]](**given["options"])
    module.load_state_dict(given["state"])
    module.to(context.device)
    last = given["last"].partition(".")[0]
    plan: dict[str, Any] = {
        name: RowwiseParallel() if name == last else ColwiseParallel()
        for name, _ in module.named_children()
    }
    mesh = init_device_mesh(context.device, (dist.get_world_size(),))
    layer = parallelize_module(module, mesh, plan)
    weight: Any = getattr(layer, last).weight
    return _step(
        context, layer, lambda: weight.grad.to_local(), buffers, layer.parameters(), _arrived
    )


def _step(
    context: RealContext,
    layer: nn.Module,
    weight_gradient: Callable[[], Any],
    buffers: Buffers,
    parameters: Any,
    arrived: Callable[[Any], Any] = lambda result: result,
) -> Callable[[], None]:
    trained = list(parameters)

    def step() -> None:
        for parameter in trained:
            parameter.grad = None
        x = buffers["x"].detach().requires_grad_()
        output = context.call(layer, x)
        context.call(torch.autograd.backward, output, buffers["gradient"])
        deliver(buffers["output"], arrived(output), "the output")
        deliver(buffers["input_gradient"], arrived(x.grad), "the gradient of the input")
        deliver(buffers["weight_gradient"], weight_gradient(), "the gradient of the last weight")

    return step


def _arrived(result: Any) -> Any:
    """A plain tensor: DTensor's collectives hand out tensors that are still on their way."""
    return result.wait() if hasattr(result, "wait") else result


class _MLP(nn.Module):
    def __init__(self, hidden: int, intermediate: int) -> None:
        super().__init__()
        self.up = nn.Linear(hidden, intermediate)
        self.down = nn.Linear(intermediate, hidden)

    def forward(self, x: torch.Tensor) -> Any:
        return self.down(F.gelu(self.up(x)))


class _Attention(nn.Module):
    """Heads are counted from the width that a rank's share of the projections has."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.head_dim = hidden // heads
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, hidden)

    def forward(self, x: torch.Tensor) -> Any:
        query, key, value = (
            layer(x).view(*x.shape[:2], -1, self.head_dim).permute(1, 2, 0, 3)
            for layer in (self.query, self.key, self.value)
        )
        out = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.output(out.permute(2, 0, 1, 3).flatten(2))
