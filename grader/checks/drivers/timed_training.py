"""Timed drivers around one training step: data parallelism and pipelines, ours and torch's.

Losses are reduced by `loss.backward()` alone, so that nothing is imported within a timed step.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from grader.checks.drivers.a3 import extends
from grader.checks.real_entry import Buffers, RealContext, deliver
from grader.checks.timed_models import Deep, Wide, slices


def data_parallel(context: RealContext, given: Any, buffers: Buffers) -> Callable[[], None]:
    """The student's wrapper. given: task, layers, width, state."""
    wrapper = context.function(given["task"])
    module = _deep(context, given)
    model = context.call(wrapper, module)
    if (torchs := extends(model)) is not None:
        raise TypeError(f"{given['task']} is to be written, not made of {torchs}")
    return _trained(context, module, model, buffers, model.finish_gradient_synchronization)


def library_data_parallel(context: RealContext, given: Any, buffers: Buffers) -> Callable[[], None]:
    """torch's own, with its defaults."""
    module = _deep(context, given)
    model = nn.parallel.DistributedDataParallel(module)
    return _trained(context, module, model, buffers, lambda: None)


def _deep(context: RealContext, given: Any) -> nn.Module:
    module = Deep(given["layers"], given["width"])
    module.load_state_dict(given["state"])
    return module.to(context.device)


def _trained(
    context: RealContext, module: nn.Module, model: Any, buffers: Buffers, finish: Callable[[], Any]
) -> Callable[[], None]:
    parameters = dict(module.named_parameters())
    homes = list(slices(buffers["gradients"], parameters.values()))

    def forward_backward() -> None:
        F.mse_loss(model(buffers["x"]), buffers["target"]).backward()  # type: ignore[no-untyped-call]
        finish()

    def step() -> None:
        for parameter in parameters.values():
            parameter.grad = None
        context.call(forward_backward)
        for home, (name, parameter) in zip(homes, parameters.items(), strict=True):
            deliver(home, parameter.grad, f"the gradient of {name}")

    return step


# Pipelines -------------------------------------------------------------------------------------


def pipeline(context: RealContext, given: Any, buffers: Buffers) -> Callable[[], None]:
    """The student's executor and stages.

    given: task, schedule (lines of text), blocks, width, ranks, states (by number of a stage that
    this rank holds), entering and leaving (micro-batches whose input and target are here).
    Buffers: x and target (micro-batches, rows, width), loss (1,), and gradients (stages, numbers):
    rows of stages that the rank does not hold are left alone.
    """
    function = context.function(given["task"])
    pipeline_stage = context.function("a6.PipelineStage")
    package = pipeline_stage.__module__.rpartition(".")[0]
    parse = context.call(importlib.import_module, f"{package}.schedule").parse_schedule
    modules = {int(number): _wide(context, given, number) for number in given["states"]}
    stages = {number: context.call(pipeline_stage, module) for number, module in modules.items()}
    schedule = parse("\n".join(given["schedule"]))
    count = len(buffers["x"])

    def entries(name: str, microbatches: list[int]) -> list[torch.Tensor | None] | None:
        here = [buffers[name][i] if i in microbatches else None for i in range(count)]
        return here if microbatches else None

    def run() -> Any:
        inputs = entries("x", given["entering"])
        targets = entries("target", given["leaving"])
        return function(schedule, stages, inputs, targets, F.mse_loss)

    return _pipelined(context, modules, run, bool(given["leaving"]), buffers)


def library_pipeline(context: RealContext, given: Any, buffers: Buffers) -> Callable[[], None]:
    """torch's 1F1B over the same model, stage r on rank r. given, buffers: as `pipeline`."""
    from torch.distributed import pipelining

    rank, ranks = context.rank, given["ranks"]
    module = _wide(context, given, str(rank))
    stage = pipelining.PipelineStage(module, rank, ranks, torch.device(context.device))
    schedule = pipelining.Schedule1F1B(stage, len(buffers["x"]), loss_fn=F.mse_loss)
    x, target = (buffers[name].flatten(0, 1) for name in ("x", "target"))
    first, last = rank == 0, rank == ranks - 1

    def run() -> Any:
        losses: list[torch.Tensor] = []
        more: dict[str, Any] = {"target": target, "losses": losses} if last else {}
        schedule.step(*[x] * first, **more)
        return torch.stack([loss.detach() for loss in losses]).mean() if last else None

    return _pipelined(context, {rank: module}, run, last, buffers)


def _wide(context: RealContext, given: Any, number: str) -> nn.Module:
    module = Wide(given["blocks"], given["width"])
    module.load_state_dict(given["states"][number])
    return module.to(context.device)


def _pipelined(
    context: RealContext,
    modules: dict[int, nn.Module],
    run: Callable[[], Any],
    last: bool,
    buffers: Buffers,
) -> Callable[[], None]:
    parts: list[tuple[torch.Tensor, str, nn.Parameter]] = []
    for number, module in modules.items():
        named = dict(module.named_parameters())
        homes = slices(buffers["gradients"][number], named.values())
        parts += [
            (home, f"stage {number}, {name}", parameter)
            for home, (name, parameter) in zip(homes, named.items(), strict=True)
        ]

    def step() -> None:
        for _, _, parameter in parts:
            parameter.grad = None
        loss = context.call(run)
        for home, name, parameter in parts:
            deliver(home, parameter.grad, f"the gradient of {name}")
        if last:
            deliver(buffers["loss"], loss.reshape(1), "the loss")

    return step
