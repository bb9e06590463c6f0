"""What runs beside the student's code of assignment 6.

Given types (`Action`, `Costs`) are built in the rank's own copy of the given modules. Schedules go
back as text; nothing is judged here.
"""

from __future__ import annotations

import gc
import importlib
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from grader.checks import pipeline_models as models
from grader.checks.context import RankContext
from grader.fabric import region


def given(ctx: RankContext, task: str, module: str) -> Any:
    """A given module of the assignment that `task` belongs to, in this rank's own copy."""
    package = ctx.function(task).__module__.rpartition(".")[0]
    with region(True):
        return importlib.import_module(f"{package}.{module}")


def refusable(ctx: RankContext, case: dict[str, Any], function: Any, *args: Any) -> Any:
    """(result, error) of a call; an exception is an answer where the case says `refused`."""
    try:
        return ctx.call(function, *args), None
    except NotImplementedError:
        raise
    except Exception as raised:
        if not case.get("refused"):
            raise
        bases = [base.__name__ for base in type(raised).__mro__]
        return None, {"type": type(raised).__name__, "message": str(raised), "bases": bases}


# Schedules on paper ----------------------------------------------------------------------------


def schedules(ctx: RankContext, inputs: dict[str, Any]) -> list[Any]:
    """Call the scheduler `inputs["task"]` with each of `inputs["cases"]`' `arguments`.

    Per case: `schedule` (one line of text per rank) or `malformed` (what is wrong), or `error`.
    """
    function = ctx.function(inputs["task"])
    answers: list[Any] = []
    for case in inputs["cases"]:
        schedule, error = refusable(ctx, case, function, *case["arguments"])
        answers.append({"error": error} if error else written(schedule))
    return answers


def written(schedule: Any) -> dict[str, Any]:
    """A schedule as text, whatever it is: its steps are looked at, never trusted."""
    if not isinstance(schedule, (list, tuple)):
        return {"malformed": f"expected a list of steps per rank, got {type(schedule).__name__}"}
    lines: list[str] = []
    for rank, steps in enumerate(schedule):
        if not isinstance(steps, (list, tuple)):
            return {"malformed": f"rank {rank}: expected a list, got {type(steps).__name__}"}
        words: list[str] = []
        for index, step in enumerate(steps):
            pair = hasattr(step, "forward") and hasattr(step, "backward")
            parts = [_word(part) for part in ([step.forward, step.backward] if pair else [step])]
            if None in parts:
                return {
                    "malformed": f"rank {rank}, step {index}: expected an Action (kind, stage, "
                    f"microbatch) or an Overlapped of two, got {step!r}"[:300]
                }
            words.append("+".join(str(part) for part in parts))
        lines.append(" ".join(words))
    return {"schedule": lines}


def _word(action: Any) -> str | None:
    kind, stage, microbatch = (
        getattr(action, name, None) for name in ("kind", "stage", "microbatch")
    )
    numbers = all(isinstance(n, int) and not isinstance(n, bool) for n in (stage, microbatch))
    if not (isinstance(kind, str) and kind.isalpha() and len(kind) < 20 and numbers):
        return None
    return f"{kind}{stage}.{microbatch}"


def partitions(ctx: RankContext, inputs: dict[str, Any]) -> list[Any]:
    """Call `partition_layers` for each case: `cut` as lists of numbers, or `error`."""
    function = ctx.function("a6.partition_layers")
    answers: list[Any] = []
    for case in inputs["cases"]:
        result, error = refusable(ctx, case, function, list(case["costs"]), case["stages"])
        try:
            cut = None if error else [[int(begin), int(end)] for begin, end in result]
        except (TypeError, ValueError):
            cut, error = None, None
        answers.append({"cut": cut, "error": error, "shown": repr(result)[:200]})
    return answers


def ratios(ctx: RankContext, inputs: dict[str, Any]) -> list[Any]:
    """Call `bubble_ratio` on the examiner's schedules and costs."""
    function = ctx.function("a6.bubble_ratio")
    schedule, timeline = (given(ctx, "a6.bubble_ratio", m) for m in ("schedule", "timeline"))
    answers: list[Any] = []
    for case in inputs["cases"]:
        parsed = schedule.parse_schedule("\n".join(case["schedule"]))
        result = ctx.call(function, parsed, timeline.Costs(*case["costs"]))
        number = isinstance(result, (int, float)) and not isinstance(result, bool)
        answers.append({"ratio": float(result) if number else None, "shown": repr(result)[:200]})
    return answers


# One stage -------------------------------------------------------------------------------------


def stage(ctx: RankContext, inputs: dict[str, Any]) -> list[Any]:
    """Take each case's micro-batches through a stage: all forwards, then the backwards.

    A case: `model`, `state`, `inputs` (per micro-batch a list of tensors), `requires` (per input,
    whether it wants a gradient), `gradients` (per micro-batch one per output, or None), `mode`:
    "B", "IW" (each micro-batch's W after its I) or "late" (all W after all I).
    The answer: `outputs`, `input_gradients`, `early` (names of parameters with a gradient before
    any W), `parameters` (gradients by name).
    """
    pipeline_stage = ctx.function("a6.PipelineStage")
    return [_one_stage(ctx, pipeline_stage, case) for case in inputs["cases"]]


def _one_stage(ctx: RankContext, pipeline_stage: Any, case: dict[str, Any]) -> dict[str, Any]:
    module = models.build(case["model"], case["state"])
    run = ctx.call(pipeline_stage, module)
    outputs: list[Any] = []
    for number, tensors in enumerate(case["inputs"]):
        given_inputs = [
            t.clone().requires_grad_(wanted)
            for t, wanted in zip(tensors, case["requires"], strict=True)
        ]
        found = ctx.call(run.forward, number, *given_inputs)
        outputs.append([t.detach().clone() for t in _as_list(found)])
        del found, given_inputs
    answer: dict[str, Any] = {"outputs": outputs, "input_gradients": [], "early": []}
    for number, gradients in enumerate(case["gradients"]):
        method = run.backward if case["mode"] == "B" else run.backward_input
        found = ctx.call(method, number, *[None if g is None else g.clone() for g in gradients])
        answer["input_gradients"].append([_copied(t) for t in _as_list(found)])
        if case["mode"] != "B" and number == 0:
            answer["early"] = [n for n, p in module.named_parameters() if p.grad is not None]
        if case["mode"] == "IW":
            ctx.call(run.backward_weight, number)
    if case["mode"] == "late":
        for number in reversed(range(len(case["gradients"]))):
            ctx.call(run.backward_weight, number)
    answer["parameters"] = {n: _copied(p.grad) for n, p in module.named_parameters()}
    return answer


def _as_list(found: Any) -> list[Any]:
    return list(found) if isinstance(found, (tuple, list)) else [found]


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _storage(tensor: torch.Tensor) -> Any:
    """A weak reference to a tensor's memory."""
    return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]


class _Kept:
    """A tensor that autograd keeps for a backward, so that one can see when it lets go."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def stage_memory(ctx: RankContext, inputs: dict[str, Any]) -> dict[str, list[str]]:
    """After each micro-batch's backward: what of it is still alive, per `mode`.

    `inputs["modes"]`; `model`, `state`, `input`, `gradient` as for `stage`. The answer names, per
    mode and micro-batch, which of "saved tensors", "input", "output", "gradient" are.
    """
    answer: dict[str, list[str]] = {}
    for mode in inputs["modes"]:
        module = models.build(inputs["model"], inputs["state"])
        run = ctx.call(ctx.function("a6.PipelineStage"), module)
        kept: list[weakref.WeakSet[_Kept]] = [weakref.WeakSet() for _ in range(3)]
        storages: list[dict[str, Any]] = []
        for number in range(3):
            storages.append(_forward_watched(ctx, run, number, inputs, kept[number]))
        answer[mode] = []
        for number in (1, 0, 2):
            gradient = inputs["gradient"].clone()
            storages[number]["gradient"] = _storage(gradient)
            if mode == "B":
                ctx.call(run.backward, number, gradient)
            else:
                ctx.call(run.backward_input, number, gradient)
                del gradient
                ctx.call(run.backward_weight, number)
            gradient = None
            gc.collect()
            alive = ["saved tensors"] if len(kept[number]) else []
            alive += [name for name, ref in storages[number].items() if not ref.expired()]
            answer[mode] += [f"micro-batch {number}: {name}" for name in alive]
    return answer


def _forward_watched(
    ctx: RankContext, run: Any, number: int, inputs: dict[str, Any], kept: Any
) -> dict[str, Any]:
    def pack(tensor: torch.Tensor) -> _Kept:
        # Detached: an output that knew its own node would keep it alive for ever.
        held = _Kept(tensor.detach())
        kept.add(held)
        return held

    def unpack(held: _Kept) -> torch.Tensor:
        return held.tensor

    tensor = inputs["input"].clone().requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        output = ctx.call(run.forward, number, tensor)
    return {
        "input": _storage(tensor),
        "output": _storage(_as_list(output)[0]),
    }


def stage_flops(ctx: RankContext, inputs: dict[str, Any]) -> None:
    """Forward, backward_input and, unless `only_input`, backward_weight of one micro-batch."""
    run = ctx.call(ctx.function("a6.PipelineStage"), models.build("perceptrons", inputs["state"]))
    ctx.call(run.forward, 0, inputs["input"].clone().requires_grad_())
    ctx.call(run.backward_input, 0, inputs["gradient"].clone())
    if not inputs["only_input"]:
        ctx.call(run.backward_weight, 0)


# A whole pipeline ------------------------------------------------------------------------------


def pipeline(ctx: RankContext, inputs: dict[str, Any]) -> dict[str, Any]:
    """Run a schedule with the student's executor, `rounds` times, gradients accumulating.

    `task`: "a6.run_schedule" or "a7.run_dualpipe". `schedule`: lines of text. `stages`: per stage
    number of this rank its `model` and `state`. `inputs`, `targets`: per micro-batch, or None.
    `ranks`: of the sub-group, or None. `refused`: an exception is an answer.
    The answer: `losses` per round, `gradients` per stage by name, `error`.
    """
    function = ctx.function(inputs["task"])
    pipeline_stage = ctx.function("a6.PipelineStage")
    parse = given(ctx, "a6.PipelineStage", "schedule").parse_schedule
    group = ctx.group(inputs["ranks"])
    if inputs["ranks"] is not None and ctx.rank not in inputs["ranks"]:
        return {"losses": [], "gradients": {}, "error": None}
    modules = {
        int(number): models.build(each["model"], each["state"])
        for number, each in inputs["stages"].items()
    }
    stages = {number: ctx.call(pipeline_stage, module) for number, module in modules.items()}
    losses: list[Any] = []
    error = None
    for _ in range(inputs["rounds"]):
        loss, error = refusable(
            ctx,
            inputs,
            function,
            parse("\n".join(inputs["schedule"])),
            stages,
            _cloned(inputs["inputs"]),
            _cloned(inputs["targets"]),
            models.mean_square,
            group,
        )
        losses.append(_copied(loss))
    return {
        "losses": losses,
        "gradients": {
            str(number): {n: _copied(p.grad) for n, p in module.named_parameters()}
            for number, module in modules.items()
        },
        "error": error,
    }


def _cloned(values: Sequence[Any] | None) -> list[Any] | None:
    if values is None:
        return None
    return [
        None if v is None else tuple(t.clone() for t in v) if isinstance(v, list) else v.clone()
        for v in values
    ]


def timed_pipeline(ctx: RankContext, inputs: dict[str, Any]) -> None:
    """Run a schedule over bias-free linear stages of meta tensors, `width` × `width`.

    Inputs require gradients, so that every stage computes F, I and W of equal FLOPs.
    """
    width, count = inputs["width"], inputs["microbatches"]
    function = ctx.function(inputs["task"])
    pipeline_stage = ctx.function("a6.PipelineStage")
    parse = given(ctx, "a6.PipelineStage", "schedule").parse_schedule

    def empty() -> torch.Tensor:
        return torch.empty(width, width, device="meta")

    stages = {
        number: ctx.call(pipeline_stage, torch.nn.Linear(width, width, bias=False, device="meta"))
        for number in inputs["stages"]
    }
    entering, leaving = inputs["entering"], inputs["leaving"]
    first = [empty().requires_grad_() if i in entering else None for i in range(count)]
    last = [empty() if i in leaving else None for i in range(count)]
    product: Callable[[Any, Any], torch.Tensor] = lambda output, target: (output * target).sum()  # noqa: E731
    ctx.call(
        function,
        parse("\n".join(inputs["schedule"])),
        stages,
        first if entering else None,
        last if leaving else None,
        product,
    )


def draw(ctx: RankContext, inputs: dict[str, Any]) -> dict[str, Any]:
    """Call a scheduler and draw what it returned, with the given modules of the solution."""
    schedule = ctx.call(ctx.function(inputs["task"]), *inputs["arguments"])
    # DualPipe's assignment has its schedules' types and pictures from this one.
    package = ctx.function(inputs["task"]).__module__.split(".")[0]
    with region(True):
        timeline, picture = (
            importlib.import_module(f"{package}.a6_pipeline_parallel.{name}")
            for name in ("timeline", "picture")
        )
    timed = ctx.call(timeline.time_schedule, schedule, timeline.Costs(*inputs["costs"]))
    return {
        "svg": ctx.call(picture.to_svg, timed, inputs["title"]),
        "text": ctx.call(picture.to_terminal, timed, inputs["colour"]),
    } | written(schedule)
