"""Two optimizers that start at once: torch's own import its compiler (1 s) at their first step.

Every check runs in a worker of its own, where that second would be paid anew. They are ordinary
subclasses of `torch.optim.Optimizer`, written from the papers' formulas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.optim import Optimizer


def without_the_compiler() -> None:
    """Let the base class's own methods run as they are, too, without asking the compiler first."""
    for name in ("add_param_group", "zero_grad", "state_dict", "load_state_dict"):
        plain = getattr(getattr(Optimizer, name), "__wrapped__", None)
        if plain is not None and not hasattr(plain, "__dynamo_disable"):
            setattr(plain, "__dynamo_disable", plain)


class Momentum(Optimizer):
    """Gradient descent with momentum and (coupled) weight decay [Polyak 1964].

    State: `momentum_buffer`, of the parameter's shape.
    """

    def __init__(
        self, params: Any, lr: float = 0.01, momentum: float = 0.9, weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(parameter)
                velocity = state["momentum_buffer"].mul_(group["momentum"])
                velocity.add_(parameter.grad + group["weight_decay"] * parameter)
                parameter.sub_(group["lr"] * velocity)


class AdamW(Optimizer):
    """Adam with decoupled weight decay [Kingma, Ba 2015; Loshchilov, Hutter 2019].

    State: `step`, a scalar tensor, and `exp_avg`, `exp_avg_sq`, of the parameter's shape.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, options)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            (beta1, beta2), lr = group["betas"], group["lr"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["step"] = torch.zeros(())
                    state["exp_avg"] = torch.zeros_like(parameter)
                    state["exp_avg_sq"] = torch.zeros_like(parameter)
                state["step"] += 1
                count = int(state["step"])
                mean = state["exp_avg"].mul_(beta1).add_((1 - beta1) * parameter.grad)
                square = state["exp_avg_sq"].mul_(beta2).add_((1 - beta2) * parameter.grad**2)
                spread = (square / (1 - beta2**count)).sqrt() + group["eps"]
                parameter.mul_(1 - lr * group["weight_decay"])
                parameter.sub_(lr / (1 - beta1**count) * mean / spread)


def optimizer_class(name: str) -> type[Optimizer]:
    """ "AdamW" and "Momentum" from here; "torch.optim.Adam" and its like from torch."""
    without_the_compiler()
    if name.startswith("torch.optim."):
        found: type[Optimizer] = getattr(torch.optim, name.removeprefix("torch.optim."))
        return found
    return {"AdamW": AdamW, "Momentum": Momentum}[name]


def make(spec: Mapping[str, Any], parameters: Iterable[Any]) -> Optimizer:
    """The optimizer of a spec: {"class": name, "options": keyword arguments}."""
    return optimizer_class(spec["class"])(parameters, **spec["options"])
