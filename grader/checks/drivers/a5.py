"""What runs beside the student's code of assignment 5, on every rank. Nothing is judged here.

Mappings, norms and blocks run in the drivers of assignment 4.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch

from grader.checks.a3_memory import LiveBytes
from grader.checks.context import RankContext
from grader.checks.drivers.a4 import described, outside, position, take_gradients, unfit
from grader.fabric import region


def calls(ctx: RankContext, inputs: dict[str, Any]) -> list[Any]:
    """Call the function of `inputs["task"]`, and take gradients where a case says so.

    A case: `tensors` (positional arguments), `more` (those after them), `named`, `gradient` (of
    the result, or None), `ranks`, `refused`, `no_group` (the function takes none). Answers:
    `outputs` (a list), `gradients` (by tensor), `tensors` as they are afterwards, `own_memory` (the
    result shares no storage with an argument), `marks` (before, between, after).
    """
    function = ctx.function(inputs["task"])
    answers: list[Any] = []
    for case in inputs["cases"]:
        group = ctx.group(case["ranks"])
        if outside(ctx, case):
            answers.append(None)
            continue
        wanted = case["gradient"] is not None
        tensors = [t.requires_grad_() if wanted else t for t in case["tensors"]]
        where = {} if case["no_group"] else {"group": group}
        marks = [position()]
        try:
            result = ctx.call(function, *tensors, *case["more"], **where, **case["named"])
        except NotImplementedError:
            raise
        except Exception as raised:
            if not case["refused"]:
                raise
            answers.append(described(raised))
            continue
        marks.append(position())
        outputs = list(result) if isinstance(result, (tuple, list)) else [result]
        if wanted and not unfit(outputs[0], case["gradient"]):
            with region(True):
                take_gradients(outputs[0], case["gradient"])
        marks.append(position())
        answers.append(
            {
                "outputs": outputs,
                "gradients": [t.grad for t in tensors],
                "tensors": [t.detach() for t in tensors],
                "own_memory": _own_memory(outputs, tensors),
                "marks": marks,
            }
        )
    return answers


def _own_memory(outputs: list[Any], tensors: list[torch.Tensor]) -> bool:
    given = {t.untyped_storage().data_ptr() for t in tensors}
    return not any(
        isinstance(o, torch.Tensor) and o.untyped_storage().data_ptr() in given for o in outputs
    )


def ring_memory(ctx: RankContext, inputs: dict[str, Any]) -> Any:
    """Live bytes of this rank around one ring attention, forward and backward.

    `forward`, `backward`: the peaks; `saved`: what is alive between them besides q, k, v and the
    result. All above what was alive before.
    """
    function = ctx.function("a5.ring_attention")
    case = inputs["case"]
    tensors = [t.requires_grad_() for t in case["tensors"]]
    watch = LiveBytes()
    watch.start(*tensors)

    def peak(run: Callable[[], Any]) -> tuple[int, Any]:
        gc.collect()
        watch.restart()
        begin = watch.live()
        result = run()
        return watch.peak - begin, result

    begin = watch.live()
    forward, output = peak(lambda: ctx.call(function, *tensors, *case["more"]))
    gc.collect()
    saved = watch.live() - begin - output.untyped_storage().nbytes()
    gradient = case["gradient"]
    with region(True):
        backward, _ = peak(lambda: take_gradients(output, gradient))
    return {"forward": forward, "backward": backward, "saved": saved}
