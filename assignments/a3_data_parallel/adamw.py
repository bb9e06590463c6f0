"""Given: AdamW as one of torch's optimizers, which runs your kernel ``adamw`` where it can run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

import kernels


class FusedAdamW(torch.optim.Optimizer):
    """AdamW [Loshchilov, Hutter 2019]; a step on a GPU is one pass over memory.

    By ``adamw`` of your ``kernels.cu`` for parameters and gradients that are float32 or bfloat16,
    contiguous and on a GPU; by torch's operations, with the same formula, elsewhere. Goes into
    ``ShardedOptimizer(params, FusedAdamW, lr=…)`` as any other.

    State per parameter, named as ``torch.optim.AdamW`` names it: ``step``, ``exp_avg``,
    ``exp_avg_sq``. The moments are float32 or wider, also of 16-bit parameters.

    Args:
        params: parameters, or dicts of them with options.
        lr: learning rate, at least 0.
        betas: decay of the two moments, in [0, 1).
        eps: added to the root of the second moment, at least 0.
        weight_decay: at least 0; parameters shrink by lr · weight_decay of themselves in a step.

    Raises:
        ValueError: an option outside its range; the message names it and its value.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        for name, value in (("lr", lr), ("eps", eps), ("weight_decay", weight_decay)):
            if value < 0:
                raise ValueError(f"{name}={value}: expected at least 0")
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"betas={betas}: expected both at least 0 and below 1")
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, options)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Update every parameter that has a gradient; returns what ``closure`` returns."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            options = {name: group[name] for name in ("lr", "betas", "eps", "weight_decay")}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, options)
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As every optimizer's, but moments stay as wide as they were saved."""
        super().load_state_dict(state_dict)  # rounds them to their parameter's dtype
        numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        for number, parameter in zip(numbers, parameters, strict=True):
            saved = state_dict["state"].get(number, {})
            for name in ("exp_avg", "exp_avg_sq"):
                if name in saved:
                    self.state[parameter][name] = torch.empty_like(_moment(parameter))
                    self.state[parameter][name].copy_(saved[name])

    def _update(
        self, parameter: torch.Tensor, gradient: torch.Tensor, options: dict[str, Any]
    ) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"], state["exp_avg_sq"] = _moment(parameter), _moment(parameter)
        state["step"] += 1
        step, moments = int(state["step"]), (state["exp_avg"], state["exp_avg_sq"])
        fused = kernels.usable(__file__, parameter, gradient)
        if fused is None:
            _adamw(parameter, gradient, *moments, step=step, **options)
        else:
            fused.adamw(parameter, gradient, *moments, step=step, **options)


def _moment(parameter: torch.Tensor) -> torch.Tensor:
    """Zeros of a parameter's shape, float32 or wider, contiguous."""
    wide = torch.promote_types(parameter.dtype, torch.float32)
    return torch.zeros_like(parameter, dtype=wide, memory_format=torch.contiguous_format)


def _adamw(
    parameter: torch.Tensor,
    gradient: torch.Tensor,
    exp_avg: torch.Tensor,
    exp_avg_sq: torch.Tensor,
    *,
    step: int,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
) -> None:
    """What the kernel does, in torch's operations; a 16-bit parameter is rounded once."""
    gradient = gradient.to(exp_avg.dtype)
    exp_avg.lerp_(gradient, 1 - betas[0])
    exp_avg_sq.mul_(betas[1]).addcmul_(gradient, gradient, value=1 - betas[1])
    corrections = [1 - beta**step for beta in betas]
    root = (exp_avg_sq.sqrt() / corrections[1] ** 0.5).add_(eps)
    value = parameter.to(exp_avg.dtype) * (1 - lr * weight_decay)
    parameter.copy_(value.addcdiv_(exp_avg, root, value=-lr / corrections[0]))
