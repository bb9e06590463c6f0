"""What runs beside the student's planner for `grader plan`: names in, the best plans out."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

from grader.checks.context import RankContext
from grader.checks.drivers.a9 import layout_of, memory_of, number_of, plan_fields


def best_plans(ctx: RankContext, inputs: dict[str, Any]) -> dict[str, Any]:
    """Call `plan`, and tell the best of its plans, one of each layout.

    inputs: `model` (a name, or the fields of one), `cluster` (a name), `devices`, `batch_tokens`
    (or `sequences`), `most`. Answers: `error`, in words, for what cannot be; else `rows`, `fitting`
    and `refused` (counts, by kind), `reasons` (an example of each), `devices`, `batch_tokens`.
    """
    function = ctx.function("a9.plan")
    package = function.__module__.rpartition(".")[0]
    given = importlib.import_module(".given", package)
    try:
        wanted = inputs["model"]
        model = given.Model.preset(wanted) if isinstance(wanted, str) else given.Model(**wanted)
        cluster = _cluster(given, inputs["cluster"], inputs["devices"])
    except ValueError as error:
        return {"error": str(error)}
    tokens = inputs["batch_tokens"] or inputs["sequences"] * model.sequence
    try:
        ranking = ctx.call(function, model, cluster, tokens)
    except ValueError as error:
        return {"error": str(error)}
    step_time = ctx.function("a9.step_time")
    rows: list[dict[str, Any]] = []
    seen: set[tuple[int, ...]] = set()
    for entry in ranking.best:
        if len(rows) == inputs["most"]:
            break
        if layout_of(entry.plan) not in seen:
            seen.add(layout_of(entry.plan))
            rows.append(_row(entry, model, cluster, tokens, ctx.call(step_time, model, entry.plan,
                                                                     cluster)))  # fmt: skip
    counts: dict[str, int] = {}
    reasons: dict[str, str] = {}
    for entry in ranking.refused:
        kind = str(entry.kind)
        counts[kind] = counts.get(kind, 0) + 1
        reasons.setdefault(kind, f"{entry.plan}: {entry.reason}")
    short = [entry for entry in ranking.refused if entry.kind == "memory"]
    if short:
        # The example that tells most: what one would do with more memory.
        def seconds(entry: Any) -> float:
            return float(ctx.call(step_time, model, entry.plan, cluster))

        quickest = min(short, key=seconds)
        took = f"{seconds(quickest):.3f} s with more memory"
        reasons["memory"] = f"{quickest.plan} ({took}): {quickest.reason}"
    return {
        "rows": rows,
        "fitting": len(ranking.best),
        "refused": counts,
        "reasons": reasons,
        "devices": cluster.devices,
        "batch_tokens": tokens,
        "name": model.name,
        "parameters": float(model.parameters),
        "usable": float(cluster.usable_memory),
    }


def _cluster(given: Any, name: str, devices: int) -> Any:
    """Whole nodes, or a part of one."""
    cluster = given.Cluster.preset(name, devices)
    if cluster.devices == devices:
        return cluster
    if cluster.nodes == 1:
        return replace(cluster, devices_per_node=devices)
    raise ValueError(
        f"{devices} devices are no whole nodes of {name}: a node has {cluster.devices_per_node}"
    )


def _row(entry: Any, model: Any, cluster: Any, tokens: int, seconds: Any) -> dict[str, Any]:
    cut, own = entry.plan, number_of(seconds) or float("nan")
    stages = (cut.pp - 1) / cut.chunks
    flops = model.model_flops(tokens) / cluster.devices / cluster.flops
    return {
        "plan": plan_fields(cut),
        "memory": memory_of(entry.memory),
        "seconds": own,
        "mfu": flops / own,
        "bubble": stages / (cut.micro_batches + stages),
        "parts": _numbers(getattr(seconds, "parts", None)),
        "traffic": _numbers(getattr(seconds, "traffic", None)),
    }


def _numbers(found: Any) -> dict[str, float]:
    """What a `StepTime` carries; nothing where a student returns a plain number."""
    if not isinstance(found, dict):
        return {}
    numbers = {str(name): number_of(value) for name, value in found.items()}
    return {name: value for name, value in numbers.items() if value is not None}
