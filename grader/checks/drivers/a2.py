"""Runs beside the student's code of assignment 2: hands it a rank's tensors, brings back what came.

Every driver takes a list of cases and runs them one after the other in one world. A case is a dict
that each rank gets for itself:

    ranks: global ranks of the sub-group in group order, None for the default group; a rank that
        is not in it only helps to make the group and returns None for the case.
    op: name of a `dist.ReduceOp`, None to leave the argument out.
    options: further keyword arguments.
    catch: bring an exception back as {"raised": type, "message": text} in place of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from grader.checks.context import RankContext

Case = dict[str, Any]


def all_reduce(ctx: RankContext, inputs: dict[str, Any]) -> list[Any]:
    """`task`(tensor, op, group=…) in place. Case: tensor."""
    function = ctx.function(inputs["task"])

    def run(case: Case, group: dist.ProcessGroup | None) -> dict[str, Any]:
        ctx.call(function, case["tensor"], *_op(case), group=group, **case["options"])
        return {"tensor": case["tensor"]}

    return [_run(ctx, case, run) for case in inputs["cases"]]


def reduce_scatter(ctx: RankContext, inputs: dict[str, Any]) -> list[Any]:
    """ring_reduce_scatter(output, tensor, op, group=…). Case: output, tensor."""
    function = ctx.function("a2.ring_reduce_scatter")

    def run(case: Case, group: dist.ProcessGroup | None) -> dict[str, Any]:
        ctx.call(function, case["output"], case["tensor"], *_op(case), group=group)
        return {"output": case["output"], "tensor": case["tensor"]}

    return [_run(ctx, case, run) for case in inputs["cases"]]


def all_gather(ctx: RankContext, inputs: dict[str, Any]) -> list[Any]:
    """ring_all_gather(output, tensor, group=…). Case: output, tensor."""
    function = ctx.function("a2.ring_all_gather")

    def run(case: Case, group: dist.ProcessGroup | None) -> dict[str, Any]:
        ctx.call(function, case["output"], case["tensor"], group=group)
        return {"output": case["output"], "tensor": case["tensor"]}

    return [_run(ctx, case, run) for case in inputs["cases"]]


def hierarchical(ctx: RankContext, inputs: dict[str, Any]) -> list[Any]:
    """hierarchical_all_reduce(tensor, op, intra_group, inter_group).

    inputs["nodes"]: global ranks of every node, a list each. Case: tensor.
    """
    function = ctx.function("a2.hierarchical_all_reduce")
    nodes: list[list[int]] = inputs["nodes"]
    groups = [ctx.group(node) for node in nodes]
    columns = [ctx.group(list(column)) for column in zip(*nodes, strict=True)]
    node = next(i for i, ranks in enumerate(nodes) if ctx.rank in ranks)
    intra, inter = groups[node], columns[nodes[node].index(ctx.rank)]

    def run(case: Case, group: dist.ProcessGroup | None) -> dict[str, Any]:
        ctx.call(function, case["tensor"], *_op(case), intra, inter)
        return {"tensor": case["tensor"]}

    return [_run(ctx, case, run) for case in inputs["cases"]]


def _op(case: Case) -> list[Any]:
    return [] if case["op"] is None else [getattr(dist.ReduceOp, case["op"])]


def _run(
    ctx: RankContext,
    case: Case,
    run: Callable[[Case, dist.ProcessGroup | None], dict[str, Any]],
) -> dict[str, Any] | None:
    group = ctx.group(case["ranks"])
    if case["ranks"] is not None and ctx.rank not in case["ranks"]:
        return None
    if not case["catch"]:
        return run(case, group)
    try:
        return run(case, group)
    except NotImplementedError:
        raise
    except Exception as error:
        bases = [base.__name__ for base in type(error).__mro__]
        return {"raised": type(error).__name__, "bases": bases, "message": str(error)}
