"""What runs beside the student's code of assignment 2 where one group is not enough.

The tasks around a single group use `a1:collective`.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from grader.checks.context import RankContext


def hierarchical(ctx: RankContext, inputs: dict[str, Any]) -> list[Any]:
    """Call `hierarchical_all_reduce` once for each of `inputs["cases"]`.

    A case as for `a1:collective`, but `arguments` hold `nodes` beside `tensor`: the global ranks
    of every node, in the order of their places. Answers are those of `a1:collective`, too.
    """
    function = ctx.function("a2.hierarchical_all_reduce")
    return [_one_case(ctx, function, case) for case in inputs["cases"]]


def _one_case(ctx: RankContext, function: Any, case: dict[str, Any]) -> dict[str, Any]:
    tensor, nodes = case["arguments"]["tensor"], case["arguments"]["nodes"]
    intra = [ctx.group(node) for node in nodes]
    inter = [ctx.group(column) for column in zip(*nodes, strict=True)]
    node = next(number for number, ranks in enumerate(nodes) if ctx.rank in ranks)
    place = nodes[node].index(ctx.rank)
    op, error = getattr(dist.ReduceOp, case["op"]), None
    try:
        ctx.call(function, tensor, op, intra[node], inter[place])
    except NotImplementedError:
        raise
    except Exception as raised:
        if not case["refused"]:
            raise
        error = {"type": type(raised).__name__, "message": str(raised)}
    return {"arguments": {"tensor": tensor}, "error": error}
