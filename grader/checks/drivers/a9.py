"""What runs beside the student's code of assignment 9's planning half: plain data in, and out.

Given types are built in the rank's own copy of the solution's `given` module, and taken apart here.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist

from grader.checks.context import RankContext

PARTS = ("weights", "gradients", "optimizer", "activations")


def _given(function: Callable[..., Any]) -> Any:
    return importlib.import_module(".given", function.__module__.rpartition(".")[0])


def number_of(value: Any) -> float | None:
    """A Python number of anything like one; None for what is none."""
    if isinstance(value, (bool, str, bytes)) or value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        return None


def _error(raised: Exception) -> dict[str, str]:
    frame = traceback.extract_tb(raised.__traceback__)[-1]
    where = f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}"
    return {"type": type(raised).__name__, "message": str(raised)[:2000], "where": where}


def memory_of(value: Any) -> dict[str, float | None]:
    """The parts of what memory_per_device returned, and the total it tells."""
    if isinstance(value, Mapping):
        found = {name: number_of(value.get(name)) for name in PARTS}
        return found | {"total": number_of(value.get("total"))}
    return {name: number_of(getattr(value, name, None)) for name in (*PARTS, "total")}


def memories(ctx: RankContext, inputs: dict[str, Any]) -> list[dict[str, Any]]:
    """`memory_per_device` of each of `inputs["cases"]`: fields of `model` and `plan`."""
    function = ctx.function("a9.memory_per_device")
    given = _given(function)
    answers = []
    for case in inputs["cases"]:
        model, cut = given.Model(**case["model"]), given.Plan(**case["plan"])
        value = ctx.call(function, model, cut)
        answers.append(memory_of(value) | {"type": type(value).__name__})
    return answers


def times(ctx: RankContext, inputs: dict[str, Any]) -> list[dict[str, Any]]:
    """`step_time` of each of `inputs["cases"]`: fields of `model`, `plan` and `cluster`."""
    function = ctx.function("a9.step_time")
    given = _given(function)
    answers = []
    for case in inputs["cases"]:
        model, cut = given.Model(**case["model"]), given.Plan(**case["plan"])
        value = ctx.call(function, model, cut, given.Cluster(**case["cluster"]))
        answers.append({"seconds": number_of(value), "type": type(value).__name__})
    return answers


def rankings(ctx: RankContext, inputs: dict[str, Any]) -> list[dict[str, Any]]:
    """`plan` of each of `inputs["cases"]`.

    A case: fields of `model` and `cluster`, `batch_tokens`, `candidates` (fields, or None for the
    student's own), `generator` (hand them over as an iterator), `own` (also tell what the student's
    `step_time` and `memory_per_device` say of each fitting plan), `most` (plans told at most, of
    each kind), `sample` (refused ones told at most, from all over the list, as `sampled`: (plan,
    kind)). Answers: `best`: (plan, memory, seconds[, own seconds, own memory]), `refused`:
    (plan, kind, reason), `sizes` of both lists, `layouts`: all (dp, pp, tp, cp, ep) that occur,
    `ascending`; or `error`; or `malformed`: what does not have the form that was asked for.
    """
    function = ctx.function("a9.plan")
    given = _given(function)
    return [_ranking(ctx, function, given, case) for case in inputs["cases"]]


def _ranking(ctx: RankContext, function: Any, given: Any, case: dict[str, Any]) -> dict[str, Any]:
    model, cluster = given.Model(**case["model"]), given.Cluster(**case["cluster"])
    more = {}
    if case.get("candidates") is not None:
        plans = [given.Plan(**fields) for fields in case["candidates"]]
        more["candidates"] = _one_by_one(plans) if case.get("generator") else plans
    try:
        ranking = ctx.call(function, model, cluster, case["batch_tokens"], **more)
    except NotImplementedError:
        raise
    except Exception as raised:
        return {"error": _error(raised)}
    try:
        best, refused = list(ranking.best), list(ranking.refused)
        for entry in best:
            _ = entry.plan, entry.memory, entry.seconds
        for entry in refused:
            _ = entry.plan, entry.kind, entry.reason
    except (AttributeError, TypeError) as raised:
        return {"malformed": str(raised)}
    most = case.get("most", 200)
    own = {}
    if case.get("own"):
        own = {
            "step_time": ctx.function("a9.step_time"),
            "memory": ctx.function("a9.memory_per_device"),
        }
    answer: dict[str, Any] = {"best": [], "refused": [], "sizes": [len(best), len(refused)]}
    for entry in best[:most]:
        told: dict[str, Any] = {
            "plan": plan_fields(entry.plan),
            "memory": memory_of(entry.memory),
            "seconds": number_of(entry.seconds),
        }
        if own:
            told["own_seconds"] = number_of(ctx.call(own["step_time"], model, entry.plan, cluster))
            told["own_memory"] = memory_of(ctx.call(own["memory"], model, entry.plan))
        answer["best"].append(told)
    for entry in refused[:most]:
        told = {"plan": plan_fields(entry.plan), "kind": entry.kind, "reason": str(entry.reason)}
        answer["refused"].append(told)
    if case.get("sample"):
        some = refused[:: max(1, -(-len(refused) // case["sample"]))]
        answer["sampled"] = [
            {"plan": plan_fields(entry.plan), "kind": str(entry.kind)} for entry in some
        ]
    layouts = {layout_of(entry.plan) for entry in (*best, *refused)}
    answer["layouts"] = [list(each) for each in sorted(layouts)]
    seconds = [number_of(entry.seconds) for entry in best]
    answer["ascending"] = None not in seconds and seconds == sorted(seconds)  # type: ignore[type-var]
    return answer


def _one_by_one(plans: list[Any]) -> Iterator[Any]:
    yield from plans


def layout_of(cut: Any) -> tuple[int, ...]:
    """The sizes of a plan, without schedule and savings."""
    return (cut.dp, cut.pp, cut.tp, cut.cp, cut.ep)


def plan_fields(cut: Any) -> dict[str, Any]:
    """A plan as plain data."""
    names = (
        "dp", "pp", "tp", "cp", "ep", "sequence_parallel", "micro_batch", "micro_batches", "chunks",
        "zero", "recomputation",
    )  # fmt: skip
    return {name: getattr(cut, name) for name in names}


# The mesh ---------------------------------------------------------------------------------------

DIMENSIONS = ("pp", "dp", "cp", "tp")
GROUPS = (*DIMENSIONS, "dp_cp", "ep", "edp")


def meshes(ctx: RankContext, inputs: dict[str, Any]) -> list[dict[str, Any]]:
    """`build_mesh` of each of `inputs["cases"]`: keyword arguments.

    Answers: `names`, `mesh` (the ranks, nested), `groups` by name: global ranks in their order and
    the sum of rank numbers that an all-reduce in it gives, or an error's text; or `error`.
    """
    function = ctx.function("a9.build_mesh")
    answers: list[dict[str, Any]] = []
    for arguments in inputs["cases"]:
        try:
            mesh = ctx.call(function, **arguments)
        except NotImplementedError:
            raise
        except Exception as raised:
            answers.append({"error": _error(raised)})
            continue
        names = getattr(mesh, "mesh_dim_names", None)
        ranks = getattr(mesh, "mesh", None)
        answer: dict[str, Any] = {
            "type": type(mesh).__name__,
            "names": list(names) if names else None,
            "mesh": ranks.tolist() if isinstance(ranks, torch.Tensor) else None,
            "groups": {},
        }
        for name in inputs["groups"]:
            try:
                answer["groups"][name] = _group(ctx, mesh.get_group(name))
            except Exception as raised:
                answer["groups"][name] = {"error": f"{type(raised).__name__}: {raised}"[:300]}
        answers.append(answer)
    return answers


def _group(ctx: RankContext, group: Any) -> dict[str, Any]:
    # Whoever lacks the group fails alone; the others must not wait for it in a collective.
    return {"ranks": dist.get_process_group_ranks(group), "place": dist.get_rank(group)}


# Clipping ---------------------------------------------------------------------------------------


def clips(ctx: RankContext, inputs: dict[str, Any]) -> list[dict[str, Any] | None]:
    """`clip_grad_norm` of each of `inputs["cases"]`, on this rank.

    A case: `sharded` and `replicated`: lists of gradients, None where there is none (with `shapes`
    of such parameters); `max_norm`; `ranks` of the group (None: all). Answers: None outside the
    group; `norm`, `sharded`, `replicated` (gradients afterwards), `changed` (parameters that were
    touched themselves); or `error`.
    """
    function = ctx.function("a9.clip_grad_norm")
    answers: list[dict[str, Any] | None] = []
    for case in inputs["cases"]:
        group = ctx.group(case["ranks"])
        if case["ranks"] is not None and ctx.rank not in case["ranks"]:
            answers.append(None)
            continue
        own = {
            name: [_parameter(each) for each in case[name]] for name in ("sharded", "replicated")
        }
        try:
            norm = ctx.call(function, own["sharded"], own["replicated"], case["max_norm"], group)
        except NotImplementedError:
            raise
        except Exception as raised:
            answers.append({"error": _error(raised)})
            continue
        answer: dict[str, Any] = {"norm": number_of(norm), "type": type(norm).__name__}
        for name, parameters in own.items():
            answer[name] = [None if p.grad is None else p.grad.detach() for p in parameters]
        everything = [*own["sharded"], *own["replicated"]]
        answer["changed"] = any(bool((p.detach() != 1).any()) for p in everything)
        answers.append(answer)
    return answers


def _parameter(gradient: torch.Tensor | None) -> torch.nn.Parameter:
    if gradient is None:
        return torch.nn.Parameter(torch.ones(3))
    parameter = torch.nn.Parameter(torch.ones_like(gradient))
    parameter.grad = gradient.clone()
    return parameter
