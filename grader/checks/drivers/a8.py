"""What runs beside the student's code of assignment 8, on every rank. Nothing is judged here."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from grader.checks.context import RankContext
from grader.checks.drivers.a4 import described, outside, position, take_gradients, unfit
from grader.fabric import region


def routing(ctx: RankContext, inputs: dict[str, Any]) -> list[Any]:
    """Call `top_k_router`, `load_balancing_loss` or `apply_capacity`, case by case.

    A case: `tensors` and `more` (positional), `named`, `gradient` (of the first result, or None),
    `refused`. Answers: `outputs` (a list), `gradients` and `tensors` as they are afterwards.
    """
    function = ctx.function(inputs["task"])
    answers: list[Any] = []
    for case in inputs["cases"]:
        tensors = case["tensors"]
        wanted = case["gradient"] is not None
        if wanted:
            tensors[0].requires_grad_()
        result = _tried(case, ctx.call, function, *tensors, *case["more"], **case["named"])
        if isinstance(result, dict):
            answers.append(result)
            continue
        outputs = list(result) if isinstance(result, (tuple, list)) else [result]
        if wanted and not unfit(outputs[0], case["gradient"]):
            with region(True):
                take_gradients(outputs[0], case["gradient"])
        answers.append(
            {
                "outputs": outputs,
                "gradients": [tensors[0].grad],
                "tensors": [tensor.detach() for tensor in tensors],
            }
        )
    return answers


def _tried(case: dict[str, Any], run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What `run` returns; the error as data where the case is to be refused."""
    try:
        return run(*args, **kwargs)
    except NotImplementedError:
        raise
    except Exception as raised:
        if not case["refused"]:
            raise
        return described(raised)


def biased(ctx: RankContext, inputs: dict[str, Any]) -> list[Any]:
    """Make a `BiasBalancedRouter`, let it route, and update it.

    A case: `arguments`, `bias` (to start from, or None), `logits` (or None), `gradient` (or None),
    `counts` (by update), `ranks`, `refused`. Answers: `outputs`, `gradient`, `bias` after each
    update, `kept` (arguments are what they were), `parameters` (names), `marks`.
    """
    router_class = ctx.function("a8.BiasBalancedRouter")
    answers: list[Any] = []
    for case in inputs["cases"]:
        group = ctx.group(case["ranks"])
        if outside(ctx, case):
            answers.append(None)
            continue
        answers.append(_tried(case, _biased, ctx, router_class, case, group))
    return answers


def _biased(ctx: RankContext, router_class: Any, case: dict[str, Any], group: Any) -> Any:
    router = ctx.call(router_class, *case["arguments"])
    if case["bias"] is not None:
        with torch.no_grad():
            router.bias.copy_(case["bias"])
    answer: dict[str, Any] = {"parameters": [name for name, _ in router.named_parameters()]}
    kept = True
    if case["logits"] is not None:
        logits = case["logits"]
        before = logits.clone()
        wanted = case["gradient"] is not None
        outputs = list(ctx.call(router, logits.requires_grad_(wanted)))
        if wanted and not unfit(outputs[0], case["gradient"]):
            with region(True):
                take_gradients(outputs[0], case["gradient"])
        kept = bool(torch.equal(before, logits.detach()))
        answer |= {"outputs": outputs, "gradient": logits.grad}
    answer["start"] = router.bias.detach().clone()
    biases = []
    marks = [position()]
    for counts in case["counts"]:
        before = counts.clone()
        ctx.call(router.update, counts, group)
        kept = kept and bool(torch.equal(before, counts))
        biases.append(router.bias.detach().clone())
    marks.append(position())
    return answer | {"biases": biases, "kept": kept, "marks": marks}


def exchanges(ctx: RankContext, inputs: dict[str, Any]) -> list[Any]:
    """Dispatch tokens, and where a case has `expert_output` combine it.

    A case: `tokens`, `indices`, `num_experts`, `gradient` (of the rows, or None), `expert_output`
    (or None), `weights`, `upstream` (of combine's result, or None), `ranks`, `refused`, `quiet`
    (dispatch is not counted). Answers: `rows`, `counts`, `tokens_gradient`, `kept`, `marks`
    (around dispatch and its backward), and `out`, `output_gradient`, `weights_gradient`,
    `combine_marks`.
    """
    dispatch, combining = ctx.function("a8.dispatch"), inputs["task"] == "a8.combine"
    combine = ctx.function("a8.combine") if combining else None
    answers: list[Any] = []
    for case in inputs["cases"]:
        group = ctx.group(case["ranks"])
        if outside(ctx, case):
            answers.append(None)
            continue
        answers.append(_tried(case, _exchanged, ctx, dispatch, combine, case, group))
    return answers


def _exchanged(
    ctx: RankContext, dispatch: Any, combine: Any, case: dict[str, Any], group: Any
) -> Any:
    tokens, indices = case["tokens"], case["indices"]
    given = [each.clone() for each in (tokens, indices)]
    wanted = case["gradient"] is not None
    leaf = tokens.requires_grad_() if wanted else tokens
    marks = [position()]
    with region(not case["quiet"]):
        sent = dispatch(leaf, indices, case["num_experts"], group=group)
    marks.append(position())
    if not (hasattr(sent, "tokens") and hasattr(sent, "expert_counts")):
        raise TypeError(f"dispatch returned {type(sent).__name__}, expected a given.Dispatched")
    rows, counts = sent.tokens, sent.expert_counts
    if wanted and _all_fit(rows, case["gradient"], group):
        with region(True):
            take_gradients(rows, case["gradient"])
    marks.append(position())
    answer = {
        "rows": rows.detach().clone() if isinstance(rows, torch.Tensor) else None,
        "counts": counts,
        "tokens_gradient": leaf.grad,
        "marks": marks,
    }
    if combine is not None:
        answer |= _combined(ctx, combine, case, sent, group)
    now = [leaf.detach(), indices]
    return answer | {"kept": all(torch.equal(a, b) for a, b in zip(given, now, strict=True))}


def _all(flag: bool, group: Any) -> bool:
    """Whether it is true on all ranks: what one of them leaves out, none must wait for."""
    flags = torch.tensor(int(flag))
    dist.all_reduce(flags, dist.ReduceOp.MIN, group=group)
    return bool(flags)


def _all_fit(output: Any, gradient: torch.Tensor, group: Any) -> bool:
    return _all(not unfit(output, gradient), group)


def _combined(ctx: RankContext, combine: Any, case: dict[str, Any], sent: Any, group: Any) -> Any:
    output, weights = case["expert_output"], case["weights"]
    fits = isinstance(sent.tokens, torch.Tensor)
    fits = fits and tuple(sent.tokens.shape) == tuple(case["rows_shape"])
    if not _all(fits or case["refused"], group):
        return {"out": None}
    before = [output.clone(), weights.clone()]
    wanted = case["upstream"] is not None
    if wanted:
        output.requires_grad_()
        weights.requires_grad_()
    marks = [position()]
    out = ctx.call(combine, output, weights, sent, group=group)
    marks.append(position())
    if wanted and _all_fit(out, case["upstream"], group):
        with region(True):
            take_gradients(out, case["upstream"])
    marks.append(position())
    return {
        "out": out,
        "output_gradient": output.grad,
        "weights_gradient": weights.grad,
        "combine_kept": all(
            torch.equal(a, b.detach()) for a, b in zip(before, (output, weights), strict=True)
        ),
        "combine_marks": marks,
    }


# The layer ----------------------------------------------------------------------------------------


class _Expert(nn.Module):
    def __init__(self, state: dict[str, torch.Tensor]) -> None:
        super().__init__()
        for name, value in state.items():
            setattr(self, name, nn.Parameter(value))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        up: torch.Tensor = self.up  # type: ignore[assignment]
        down: torch.Tensor = self.down  # type: ignore[assignment]
        bias: torch.Tensor = self.bias  # type: ignore[assignment]
        return F.gelu(x @ up) @ down + bias


class _Gate(nn.Module):
    """Top k of a linear layer, normalized; `dropped` (tokens, k) of them are -1."""

    def __init__(self, weight: torch.Tensor, k: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.k = k
        self.dropped: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        probabilities = (x @ self.weight.t()).softmax(-1)
        order = probabilities.detach().sort(dim=-1, descending=True, stable=True).indices
        indices = order[:, : self.k]
        weights = probabilities.gather(1, indices)
        weights = weights / weights.sum(1, keepdim=True)
        if self.dropped is not None:
            indices = indices.masked_fill(self.dropped, -1)
        return weights, indices


def layers(ctx: RankContext, inputs: dict[str, Any]) -> list[Any]:
    """Train an `ExpertParallelMoE` on this rank's tokens.

    A case: `experts` (states, of this rank), `router` (weight), `k`, `xs` and `gradients` by step,
    `dropped` by step (or None), `rate` (of SGD), `ranks`, `refused`. The gradients of the router
    are summed over the group before a step, as data parallelism would. Answers: `steps` (`output`,
    `input_gradient`, `experts` (gradients, by expert and name), `router` (gradient), `marks`),
    `kept`, `known` (parameters that are given and that the layer names), `elements` (of all).
    """
    layer_class = ctx.function("a8.ExpertParallelMoE")
    answers: list[Any] = []
    for case in inputs["cases"]:
        group = ctx.group(case["ranks"])
        if outside(ctx, case):
            answers.append(None)
            continue
        answers.append(_tried(case, _trained, ctx, layer_class, case, group))
    return answers


def _trained(ctx: RankContext, layer_class: Any, case: dict[str, Any], group: Any) -> Any:
    experts = [_Expert(state) for state in case["experts"]]
    gate = _Gate(case["router"], case["k"])
    layer = ctx.call(layer_class, experts, gate, group=group)
    given = [*(p for expert in experts for p in expert.parameters()), gate.weight]
    named = {id(p) for p in layer.parameters()}
    steps, kept = [], True
    for number, (x, gradient) in enumerate(zip(case["xs"], case["gradients"], strict=True)):
        gate.dropped = None if case["dropped"] is None else case["dropped"][number]
        for parameter in given:
            parameter.grad = None
        before = x.clone()
        leaf = x.requires_grad_()
        marks = [position()]
        output = ctx.call(layer, leaf)
        marks.append(position())
        if not _all_fit(output, gradient, group):
            steps.append({"output": output})
            break
        with region(True):
            take_gradients(output, gradient)
        marks.append(position())
        kept = kept and bool(torch.equal(before, leaf.detach()))
        steps.append(
            {
                "output": output.detach().clone(),
                "input_gradient": leaf.grad,
                "experts": [
                    {name: _copied(p.grad) for name, p in expert.named_parameters()}
                    for expert in experts
                ],
                "router": _copied(gate.weight.grad),
                "marks": marks,
            }
        )
        if gate.weight.grad is not None:
            total = gate.weight.grad.clone()
            dist.all_reduce(total, group=group)
            gate.weight.grad = total
        with torch.no_grad():
            for parameter in given:
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad, alpha=case["rate"])
    return {
        "steps": steps,
        "kept": kept,
        "known": sum(id(p) in named for p in given),
        "elements": sum(p.numel() for p in layer.parameters()),
    }


def _copied(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.clone()


def load(ctx: RankContext, inputs: dict[str, Any]) -> dict[str, str]:
    """The load of experts under the student's router, drawn by the given module beside it.

    inputs: task (`a8.top_k_router` or `a8.BiasBalancedRouter`), logits (by batch; a router with a
    bias is updated after each), k, gamma, title. Returns `svg` and `text`.
    """
    function = ctx.function(inputs["task"])
    package = function.__module__.split(".")[0]
    with region(True):
        picture = importlib.import_module(f"{package}.a8_expert_parallel.picture")
    experts, k = inputs["logits"][0].shape[1], inputs["k"]
    balanced = inputs["task"] == "a8.BiasBalancedRouter"
    router = ctx.call(function, experts, k, inputs["gamma"]) if balanced else None
    loads: dict[str, list[int]] = {}
    for number, logits in enumerate(inputs["logits"], start=1):
        chosen = ctx.call(function, logits, k) if router is None else ctx.call(router, logits)
        counts = torch.bincount(chosen[1].flatten(), minlength=experts)
        if router is not None:
            ctx.call(router.update, counts)
        if number in (1, len(inputs["logits"])):
            loads[f"batch {number}"] = counts.tolist()
    texts = [f"{name}\n{ctx.call(picture.load_bars, counts)}" for name, counts in loads.items()]
    return {"svg": ctx.call(picture.load_svg, loads, inputs["title"]), "text": "\n".join(texts)}
