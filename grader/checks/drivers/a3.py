"""What runs beside the student's code of assignment 3, on every rank: training, step by step.

Nothing is judged here. Every driver first looks whether the student's object is torch's own
machinery in disguise, and then hands back nothing but `{"extends": its name}`.
"""

from __future__ import annotations

import gc
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

from grader.checks import a3_optimizers
from grader.checks.a3_memory import LiveBytes
from grader.checks.a3_models import build, load, loss_of
from grader.checks.context import RankContext
from grader.fabric import current_runtime, region

#: Where torch keeps what a solution must not be made of.
_TORCHS_OWN = (
    "torch.nn.parallel",
    "torch.distributed.fsdp",
    "torch.distributed._composable",
    "torch.distributed.optim",
)


def extends(thing: Any) -> str | None:
    """The name of torch's own data-parallel class that an object is, holds or was made into."""
    parts: list[Any] = [thing]
    if isinstance(thing, nn.Module):
        parts += thing.modules()
    for part in list(parts):
        for value in list(vars(part).values()):
            parts += value.values() if isinstance(value, dict) else [value]
            parts += value if isinstance(value, (list, tuple, set)) else []
    for part in parts:
        for kind in type(part).__mro__:
            if kind.__module__.startswith(_TORCHS_OWN) or kind.__name__ == "Reducer":
                return f"{kind.__module__}.{kind.__qualname__}"
    return None


def _position() -> int:
    """How many events the record of this rank holds so far."""
    runtime = current_runtime()
    return len(runtime.engine.record.events[runtime.rank])


def _copies(tensors: dict[str, torch.Tensor | None]) -> dict[str, torch.Tensor | None]:
    return {
        name: None if value is None else value.detach().clone() for name, value in tensors.items()
    }


def replicas(ctx: RankContext, inputs: dict[str, Any]) -> Any:
    """Train with `DistributedDataParallel` or `ParameterServerDataParallel`, case by case.

    A case: `model`, `state` (of this rank), `ranks` (of the sub-group, None for all), `options` (of
    the wrapper), `optimizer`, `batches` (by step: lists of micro-batches for this rank; all but
    the last are accumulated), `refused` (an exception of the constructor is an answer), `quiet`
    (steps at the beginning that are not counted). Answers: None outside the group, else `start`
    (state after wrapping) and `steps`, each with `loss`, `gradients`, `parameters` (before the
    optimizer's step) and `marks`: how many events had been recorded before the forward of the first
    micro-batch, before the last backward, after it, and after finish.
    """
    wrapper_class = ctx.function(inputs["task"])
    answers: list[Any] = []
    for case in inputs["cases"]:
        group = ctx.group(case["ranks"])
        if case["ranks"] is not None and ctx.rank not in case["ranks"]:
            answers.append(None)
            continue
        model = load(build(case["model"]), case["state"])
        try:
            with region(not case["quiet"]):
                wrapper = wrapper_class(model, group=group, **case["options"])
        except NotImplementedError:
            raise
        except Exception as raised:
            if not case["refused"]:
                raise
            answers.append({"error": {"type": type(raised).__name__, "message": str(raised)}})
            continue
        name = extends(wrapper)
        if name is not None:
            return {"extends": name}
        answers.append({"start": _copies(model.state_dict())} | _train(case, model, wrapper))
    return answers


def _train(case: dict[str, Any], model: nn.Module, wrapper: Any) -> dict[str, Any]:
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = a3_optimizers.make(case["optimizer"], trainable)
    steps = []
    for number, micro_batches in enumerate(case["batches"]):
        optimizer.zero_grad()
        with region(number >= case["quiet"]):
            loss, marks = _forward_backward(wrapper, micro_batches)
        named = dict(model.named_parameters())
        steps.append(
            {
                "loss": loss,
                "marks": marks,
                "gradients": _copies({name: p.grad for name, p in named.items()}),
                "parameters": _copies(dict(named)),
            }
        )
        optimizer.step()
    return {"steps": steps}


def _forward_backward(wrapper: Any, micro_batches: list[Any]) -> tuple[torch.Tensor, list[int]]:
    losses = []
    begin = _position()
    for number, (inputs, targets, *more) in enumerate(micro_batches):
        last = number == len(micro_batches) - 1
        with nullcontext() if last else wrapper.no_sync():
            loss = loss_of(wrapper(inputs, *more), targets) / len(micro_batches)
            before = _position()
            loss.backward()  # type: ignore[no-untyped-call]
            after = _position()
            losses.append(loss.detach())
    wrapper.finish_gradient_synchronization()
    return torch.stack(losses).sum(), [begin, before, after, _position()]


# ShardedOptimizer ---------------------------------------------------------------------------------


def _spy(kind: type[torch.optim.Optimizer], made: list[torch.optim.Optimizer]) -> Any:
    """The optimizer class, which also notes its instances."""

    def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
        kind.__init__(self, *args, **kwargs)
        made.append(self)

    return type(kind.__name__, (kind,), {"__init__": initialize, "__module__": kind.__module__})


def _groups(model: nn.Module, groups: list[dict[str, Any]] | None) -> Any:
    """Parameters for an optimizer: all, or groups in which parameters stand by name."""
    if groups is None:
        return list(model.parameters())
    named = dict(model.named_parameters())
    return [each | {"params": [named[name] for name in each["params"]]} for each in groups]


def _state_numel(made: list[torch.optim.Optimizer]) -> int:
    """Elements of optimizer states, scalars (a step counter) apart."""
    storages = {}
    for optimizer in made:
        for state in optimizer.state.values():
            for value in state.values():
                if isinstance(value, torch.Tensor) and value.dim() > 0:
                    storages[value.untyped_storage()._cdata] = value
    return sum(v.untyped_storage().nbytes() // v.element_size() for v in storages.values())


def sharded_optimizer(ctx: RankContext, inputs: dict[str, Any]) -> Any:
    """Step with `ShardedOptimizer` on gradients that are averaged already, case by case.

    A case: `model`, `state`, `ranks`, `optimizer`, `groups` (or None), `gradients` (by step), and
    by step in `events`: `options` to set in parameter groups first ({group number: {...}}), `added`
    (a group to add first), `reload` (a new object takes over by state_dict), `restore` (a state
    dict to load first), `closure`. Answers: per step `parameters`, `returned`, `numel` (of states);
    `saved`, the state dict at the end, and what a scheduler saw as `lr`.
    """
    optimizer_class = ctx.function("a3.ShardedOptimizer")
    answers: list[Any] = []
    for case in inputs["cases"]:
        group = ctx.group(case["ranks"])
        if case["ranks"] is not None and ctx.rank not in case["ranks"]:
            answers.append(None)
            continue
        model = load(build(case["model"]), case["state"])
        made: list[torch.optim.Optimizer] = []
        spec = case["optimizer"]
        kind = _spy(a3_optimizers.optimizer_class(spec["class"]), made)

        def create(
            model: nn.Module = model,
            kind: Any = kind,
            case: dict[str, Any] = case,
            group: Any = group,
        ) -> Any:
            groups = _groups(model, case["groups"])
            options = case["optimizer"]["options"]
            return ctx.call(optimizer_class, groups, kind, group=group, **options)

        optimizer = create()
        name = extends(optimizer)
        if name is not None:
            return {"extends": name}
        steps = []
        for gradients, event in zip(case["gradients"], case["events"], strict=True):
            for number, options in event.get("options", {}).items():
                optimizer.param_groups[number].update(options)
            if "added" in event:
                (added,) = _groups(model, [event["added"]])
                ctx.call(optimizer.add_param_group, added)
            if event.get("reload"):
                saved = ctx.call(optimizer.state_dict)
                made.clear()
                optimizer = create()
                ctx.call(optimizer.load_state_dict, saved)
            if "restore" in event:
                ctx.call(optimizer.load_state_dict, event["restore"])
            steps.append(_step(ctx, optimizer, model, gradients, event.get("closure", False)))
            steps[-1]["numel"], steps[-1]["made"] = _state_numel(made), len(made)
        saved = ctx.call(optimizer.state_dict) if case["save"] else None
        ctx.call(optimizer.zero_grad)
        left = [n for n, p in model.named_parameters() if p.grad is not None and bool(p.grad.any())]
        answers.append({"steps": steps, "saved": saved, "not_zeroed": left})
    return answers


def _step(
    ctx: RankContext, optimizer: Any, model: nn.Module, gradients: dict[str, Any], closure: bool
) -> dict[str, Any]:
    def set_gradients() -> torch.Tensor:
        for name, parameter in model.named_parameters():
            gradient = gradients.get(name)
            parameter.grad = None if gradient is None else gradient.clone()
        return torch.tensor(4.25 if torch.is_grad_enabled() else -1.0)

    if closure:
        returned = ctx.call(optimizer.step, set_gradients)
    else:
        set_gradients()
        returned = ctx.call(optimizer.step)
    return {"parameters": _copies(dict(model.named_parameters())), "returned": returned}


# FullyShardedDataParallel -------------------------------------------------------------------------


def _wrap(ctx: RankContext, model: nn.Module, units: list[str], group: Any) -> Any:
    """Wrap the modules that `units` name ("blocks.0"), in that order, then the model."""
    wrapper_class = ctx.function("a3.FullyShardedDataParallel")
    for path in units:
        parent_path, _, name = path.rpartition(".")
        parent = model.get_submodule(parent_path)
        setattr(parent, name, wrapper_class(getattr(parent, name), group=group))
    return wrapper_class(model, group=group)


def fully_sharded(ctx: RankContext, inputs: dict[str, Any]) -> Any:
    """Train with `FullyShardedDataParallel`, case by case.

    A case: as of `replicas`, and `units` (paths of inner modules to wrap). `forward_only`: the
    counted steps are forwards without gradients. Answers: `before` and `after`, the full state
    dicts; `steps` with `loss`; `held`, elements of the wrapper's parameters.
    """
    answers: list[Any] = []
    for case in inputs["cases"]:
        group = ctx.group(case["ranks"])
        if case["ranks"] is not None and ctx.rank not in case["ranks"]:
            answers.append(None)
            continue
        model = load(build(case["model"]), case["state"])
        with region(False):
            wrapper = _wrap(ctx, model, case["units"], group)
        name = extends(wrapper)
        if name is not None:
            return {"extends": name}
        held = sum(parameter.numel() for parameter in wrapper.parameters())
        with region(False):
            before = dict(wrapper.gather_full_state_dict()) if case["states"] else None
        optimizer = a3_optimizers.make(case["optimizer"], wrapper.parameters())
        steps = []
        for number, micro_batches in enumerate(case["batches"]):
            optimizer.zero_grad()
            with region(number >= case["quiet"]):
                if case["forward_only"] and number >= case["quiet"]:
                    with torch.no_grad():
                        wrapper(*[micro_batches[0][0], *micro_batches[0][2:]])
                    continue
                losses = [_one_backward(wrapper, each, micro_batches) for each in micro_batches]
                wrapper.finish_gradient_synchronization()
            steps.append({"loss": torch.stack(losses).sum()})
            optimizer.step()
        with region(False):
            after = dict(wrapper.gather_full_state_dict()) if case["states"] else None
        answers.append({"before": before, "after": after, "steps": steps, "held": held})
    return answers


def _one_backward(wrapper: Any, batch: list[Any], micro_batches: list[Any]) -> torch.Tensor:
    inputs, targets, *more = batch
    loss = loss_of(wrapper(inputs, *more), targets) / len(micro_batches)
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()


def fully_sharded_memory(ctx: RankContext, inputs: dict[str, Any]) -> Any:
    """Live bytes of this rank through two training steps, the second of which is measured.

    The same step of the plain model, without communication, says what activations take.
    Answers: bytes as `constructed`, `evaluation` (peak of a forward without
    gradients), `forward` (peak), `after_forward`, `backward` (peak), `between`
    (after finish), and of the plain model `plain_forward`, `plain_backward` (without its parameters
    and gradients).
    """
    batch = inputs["batch"]
    plain = load(build(inputs["model"]), inputs["state"])
    watch = LiveBytes()
    watch.start(*plain.parameters())
    own = watch.live()
    output = plain(batch[0])
    figures = {"plain_forward": watch.peak - own}
    loss_of(output, batch[1]).backward()  # type: ignore[no-untyped-call]
    figures["plain_backward"] = max(watch.peak - 2 * own, figures["plain_forward"])
    del plain, output
    model = build(inputs["model"])
    load(model, inputs["state"])
    with region(False):
        wrapper = _wrap(ctx, model, inputs["units"], None)
    name = extends(wrapper)
    if name is not None:
        return {"extends": name}
    del model
    gc.collect()
    figures["constructed"] = watch.live()
    with region(False), torch.no_grad():
        watch.restart()
        wrapper(batch[0])
        figures["evaluation"] = watch.peak
    for measured in (False, True):
        for parameter in wrapper.parameters():
            parameter.grad = None
        gc.collect()
        watch.restart()
        with region(measured):
            output = wrapper(batch[0])
            if measured:
                figures["forward"] = watch.peak
                gc.collect()
                figures["after_forward"] = watch.live()
                watch.restart()
            loss = loss_of(output, batch[1])
            loss.backward()  # type: ignore[no-untyped-call]
            wrapper.finish_gradient_synchronization()
        del output, loss
    figures["backward"] = watch.peak
    gc.collect()
    figures["between"] = watch.live()
    return figures
