"""What runs beside the student's code of assignment 4, on every rank. Nothing is judged here.

`mappings` and `losses` call functions, `layers` trains layers made of dense modules; modules are
built and loaded outside the counted region. Marks are numbers of events that a rank has recorded,
which tell the calls of forward from those of backward.
"""

from __future__ import annotations

import gc
import importlib
from typing import Any

import torch
from torch import nn

from grader.checks.a3_memory import LiveBytes
from grader.checks.a4_cases import step_with_momentum
from grader.checks.context import RankContext
from grader.fabric import current_runtime, region
from grader.fabric.torch_internals import DispatchMode, push_mode


def position() -> int:
    """How many events the record of this rank holds so far."""
    runtime = current_runtime()
    return len(runtime.engine.record.events[runtime.rank])


def described(raised: Exception) -> dict[str, Any]:
    """An exception as data."""
    bases = [base.__name__ for base in type(raised).__mro__]
    return {"error": {"type": type(raised).__name__, "message": str(raised), "bases": bases}}


class _Seed(torch.autograd.Function):
    """A scalar whose backward gives `result` the gradient `upstream`, that very tensor."""

    @staticmethod
    def forward(ctx: Any, result: torch.Tensor, upstream: torch.Tensor) -> torch.Tensor:
        ctx.upstream = upstream
        return result.new_zeros(())

    @staticmethod
    def backward(ctx: Any, _: torch.Tensor) -> Any:
        return ctx.upstream, None


def take_gradients(result: torch.Tensor, upstream: torch.Tensor) -> None:
    """`torch.autograd.backward`, which with a gradient imports sympy when first used (0.3 s)."""
    if not result.requires_grad:
        raise RuntimeError("the result does not require grad: it is cut off from autograd's graph")
    _Seed.apply(result, upstream).backward()  # type: ignore[no-untyped-call]


def unfit(output: Any, gradient: torch.Tensor) -> bool:
    """Whether a result cannot take the gradient: it is of another shape than it should be."""
    whole = gradient.dim() == 0
    return not isinstance(output, torch.Tensor) or not (whole or output.shape == gradient.shape)


def outside(ctx: RankContext, case: dict[str, Any]) -> bool:
    """Whether this rank has no part in a case."""
    return case["ranks"] is not None and ctx.rank not in case["ranks"]


def mappings(ctx: RankContext, inputs: dict[str, Any]) -> list[Any]:
    """Call a mapping and take a gradient through it, case by case.

    A case: `tensor`, `gradient` (of the result; a scalar is expanded to its shape), `beside`
    (the argument is also used as it is, and its share of the gradient comes from there, too),
    `ranks`, `refused`. Answers: `output`, `input_gradient`, the argument and the gradient as they
    are afterwards, `marks` (before, between, after).
    """
    function = ctx.function(inputs["task"])
    answers: list[Any] = []
    for case in inputs["cases"]:
        group = ctx.group(case["ranks"])
        if outside(ctx, case):
            answers.append(None)
            continue
        leaf = case["tensor"].requires_grad_()
        marks = [position()]
        try:
            output = ctx.call(function, leaf, group=group)
        except NotImplementedError:
            raise
        except Exception as raised:
            if not case["refused"]:
                raise
            answers.append(described(raised))
            continue
        marks.append(position())
        gradient = case["gradient"]
        if unfit(output, gradient):
            shown = output.detach() if isinstance(output, torch.Tensor) else None
            answers.append({"output": shown, "argument": leaf.detach()})
            continue
        upstream = gradient.expand_as(output) if gradient.dim() == 0 else gradient
        given = upstream.clone()
        result = output + leaf if case["beside"] else output
        answer = {"output": output.detach().clone(), "argument": leaf.detach().clone()}
        with region(True):
            take_gradients(result, upstream)
        marks.append(position())
        answer |= {
            "input_gradient": leaf.grad,
            "gradient_kept": bool(torch.equal(upstream, given)),
            "marks": marks,
        }
        answers.append(answer)
    return answers


def losses(ctx: RankContext, inputs: dict[str, Any]) -> list[Any]:
    """Call `vocab_parallel_cross_entropy` and take a gradient, case by case.

    A case: `logits` (this rank's), `target`, `options`, `gradient` (of the losses), `ranks`,
    `refused`. Answers: `loss`, `input_gradient`, `logits` and `target` afterwards, `marks`.
    """
    function = ctx.function("a4.vocab_parallel_cross_entropy")
    answers: list[Any] = []
    for case in inputs["cases"]:
        group = ctx.group(case["ranks"])
        if outside(ctx, case):
            answers.append(None)
            continue
        logits = case["logits"].requires_grad_()
        marks = [position()]
        try:
            loss = ctx.call(function, logits, case["target"], group=group, **case["options"])
        except NotImplementedError:
            raise
        except Exception as raised:
            if not case["refused"]:
                raise
            answers.append(described(raised))
            continue
        marks.append(position())
        if unfit(loss, case["gradient"]):
            answers.append({"loss": loss})
            continue
        with region(True):
            take_gradients(loss, case["gradient"])
        marks.append(position())
        answers.append(
            {
                "loss": loss,
                "input_gradient": logits.grad,
                "logits": logits.detach(),
                "target": case["target"],
                "marks": marks,
            }
        )
    return answers


# Layers -------------------------------------------------------------------------------------------


def dense_module(ctx: RankContext, task: str, spec: dict[str, Any]) -> nn.Module:
    """The dense module of a spec, float64 unless it says otherwise; parameters are not loaded."""
    kind, options = spec["kind"], spec["options"]
    if kind in ("linear", "embedding", "norm"):
        makers: dict[str, Any] = {
            "linear": nn.Linear,
            "embedding": nn.Embedding,
            "norm": nn.LayerNorm,
        }
        plain: nn.Module = makers[kind](**options).double()
        return plain
    package = ctx.function(task).__module__.split(".")[0]
    with region(True):
        given = importlib.import_module(f"{package}.a4_tensor_parallel.dense")
    if kind == "mlp":
        module: nn.Module = given.MLP(**options)
    elif kind == "attention":
        module = given.Attention(**options)
    else:
        attention = given.Attention(**options["attention"])
        module = given.Block(
            options["hidden"], attention, given.MLP(**options["mlp"]), options["dropout"]
        )
    return module.double()


def load(module: nn.Module, case: dict[str, Any]) -> nn.Module:
    """Give a dense module the state and mode of a case."""
    module.load_state_dict(case["state"])
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name not in case["frozen"])
    return module.train(case["training"])


class Draws(DispatchMode):  # type: ignore[no-untyped-call]
    """Keeps a copy of every random mask that torch draws by `bernoulli` (so does `F.dropout`)."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.masks: list[torch.Tensor] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.partition("::")[2]
        if name.startswith("bernoulli"):
            self.masks.append(result.clone() != 0)
        elif name == "native_dropout":
            self.masks.append(result[1].clone())
        return result


def layers(ctx: RankContext, inputs: dict[str, Any]) -> Any:
    """Train the layer that `inputs["maker"]`, a class method of the task's class, makes.

    A case: `spec`, `state`, `frozen` (names), `training`, `options` (of the maker), `inputs` and
    `gradients` by step, `input_needs_gradient`, `ranks`, `refused`, `momentum`, `seed` (None, or of
    the default generator on every rank). Answers, per case: `shards` (name -> shape, bytes of the
    storage), `steps` (`output`, `input_gradient`, `gradients`, `parameters` after the optimizer's
    step, `marks`), `dense_kept`, `input_kept`, and with a seed `masks` and `agreed` (what the
    default generator gives next).
    """
    layer_class = ctx.function(inputs["task"])
    answers: list[Any] = []
    for case in inputs["cases"]:
        group = ctx.group(case["ranks"])
        if outside(ctx, case):
            answers.append(None)
            continue
        dense = load(dense_module(ctx, inputs["task"], case["spec"]), case)
        before = {name: value.clone() for name, value in dense.state_dict().items()}
        maker = getattr(layer_class, inputs["maker"])
        try:
            layer = ctx.call(maker, dense, group=group, **case["options"])
        except NotImplementedError:
            raise
        except Exception as raised:
            if not case["refused"]:
                raise
            answers.append(described(raised))
            continue
        if not isinstance(layer, nn.Module):
            kind = type(layer).__name__
            raise TypeError(f"{inputs['maker']} returned {kind}; expected the layer, an nn.Module")
        torchs_own = next(
            (type(p).__name__ for p in layer.parameters() if dispatches_itself(p)), None
        )
        if torchs_own is not None:
            return {"extends": torchs_own}
        answer = _train(ctx, case, layer)
        answer["dense_kept"] = all(
            torch.equal(value, before[name]) for name, value in dense.state_dict().items()
        )
        answers.append(answer)
    return answers


def dispatches_itself(parameter: torch.Tensor) -> bool:
    """Whether a parameter is a tensor of torch's own distributed kind (DTensor)."""
    return type(parameter).__module__.startswith("torch.distributed")


def _train(ctx: RankContext, case: dict[str, Any], layer: nn.Module) -> dict[str, Any]:
    named = dict(layer.named_parameters())
    shards = {
        name: {"shape": list(p.shape), "storage": p.untyped_storage().nbytes()}
        for name, p in named.items()
    }
    trained = [p for p in named.values() if p.requires_grad]
    momenta = [torch.zeros_like(p) for p in trained]
    draws = None
    if case["seed"] is not None:
        torch.manual_seed(case["seed"])
        draws = Draws()
        push_mode(draws)
    steps = []
    kept = True
    for given, gradient in zip(case["inputs"], case["gradients"], strict=True):
        layer.zero_grad()
        x = given.clone().requires_grad_(case["input_needs_gradient"])
        marks = [position()]
        output = ctx.call(layer, x)
        marks.append(position())
        if unfit(output, gradient):
            steps.append({"output": output})
            break
        with region(True):
            take_gradients(output, gradient)
        marks.append(position())
        kept = kept and bool(torch.equal(x.detach(), given))
        gradients = {n: None if p.grad is None else p.grad.clone() for n, p in named.items()}
        step = {"output": output.detach().clone(), "input_gradient": x.grad, "marks": marks}
        step_with_momentum(trained, momenta)
        step |= {
            "gradients": gradients,
            "parameters": {name: p.detach().clone() for name, p in named.items()},
        }
        steps.append(step)
    answer: dict[str, Any] = {"shards": shards, "steps": steps, "input_kept": kept}
    if draws is not None:
        answer |= {"masks": draws.masks[:], "agreed": torch.rand(8)}
        draws.masks.clear()
    return answer


def saved(ctx: RankContext, inputs: dict[str, Any]) -> Any:
    """Bytes that one forward pass keeps for backward, of the parallel layer and of the dense one.

    Bytes of all storages alive after it: the input with them, parameters and the result not.
    """
    task = inputs["task"]
    layer_class = ctx.function(task)
    case = inputs["case"]
    dense = load(dense_module(ctx, task, case["spec"]), case)
    layer = ctx.call(getattr(layer_class, inputs["maker"]), dense, **case["options"])
    watch = LiveBytes()
    watch.start()
    figures = {}
    for name, module, given in (
        ("dense", dense, case["whole"]),
        ("parallel", layer, case["inputs"][0]),
    ):
        gc.collect()
        start = watch.live()
        x = given.clone().requires_grad_()
        output = ctx.call(module, x)
        gc.collect()
        figures[name] = watch.live() - start - output.untyped_storage().nbytes()
        del output, x
    return figures
