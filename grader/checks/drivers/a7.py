"""What runs beside the student's code of assignment 7: two passes, and pipelines in phases.

Schedules and plain pipelines are run by the drivers of assignment 6.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from grader.checks.context import RankContext
from grader.checks.drivers.a6 import given
from grader.fabric import region


class _Watched:
    """A work that writes down that it was waited for."""

    def __init__(self, work: dist.Work, diary: list[list[Any]], name: str, index: int) -> None:
        self._work, self._diary = work, diary
        self._entry: list[Any] | None = [name, index, "wait"]

    def wait(self, *args: Any) -> bool:
        """Wait, and write it down once."""
        done = self._work.wait(*args)
        if self._entry is not None:
            self._diary.append(self._entry)
            self._entry = None
        return done

    def is_completed(self) -> bool:
        """As the work's own."""
        return self._work.is_completed()


def overlap(ctx: RankContext, inputs: dict[str, Any]) -> list[list[Any]]:
    """Run two passes through `overlapped_forward_backward`; the diary of what was begun when.

    `forward`, `backward`: phases as [kind, rows] in order. A phase computes the product of
    (rows, width) and (width, width), or exchanges rows × width numbers with the other ranks.
    An entry of the diary: ["forward" or "backward", phase, "run" or "wait"].
    """
    function = ctx.function("a7.overlapped_forward_backward")
    phases = given(ctx, "a7.overlapped_forward_backward", "phases")
    width, diary = inputs["width"], list[list[Any]]()
    matrix = torch.empty(width, width, device="meta")

    def phase(name: str, index: int, kind: str, rows: int) -> Any:
        data = torch.empty(rows, width, device="meta")

        def run() -> Any:
            diary.append([name, index, "run"])
            if kind == "compute":
                torch.mm(data, matrix)
                return None
            work = dist.all_to_all_single(torch.empty_like(data), data, async_op=True)
            assert work is not None
            return _Watched(work, diary, name, index)

        return phases.Phase(kind, run)

    passes = [
        phases.PhasedPass([phase(name, i, *each) for i, each in enumerate(inputs[name])])
        for name in ("forward", "backward")
    ]
    ctx.call(function, *passes)
    return diary


class _AllToAll:
    """Exchanges rows with the ranks of a group, forward and backward alike."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group

    def forward(self, tensor: torch.Tensor) -> tuple[torch.Tensor, dist.Work | None]:
        """Start it."""
        received = torch.empty_like(tensor)
        work = dist.all_to_all_single(
            received, tensor.contiguous(), group=self._group, async_op=True
        )
        return received, work

    backward = forward


def phased_pipeline(ctx: RankContext, inputs: dict[str, Any]) -> None:
    """Run a schedule over stages of linear parts with exchanges between them, of meta tensors.

    The world is two pipelines of equal ranks; rank r of one exchanges with rank r of the other.
    `stages`, `entering`, `leaving`, `microbatches`, `schedule` as for `a6:timed_pipeline`; `rows`,
    `width` of a micro-batch, `parts` of a stage.
    """
    half = ctx.world_size // 2
    groups = [ctx.group(range(half)), ctx.group(range(half, 2 * half))]
    pairs = [ctx.group([rank, rank + half]) for rank in range(half)]
    partners = pairs[ctx.rank % half]
    assert partners is not None
    rows, width, count = inputs["rows"], inputs["width"], inputs["microbatches"]
    function = ctx.function("a7.run_dualpipe")
    phased_stage = given(ctx, "a7.run_dualpipe", "phases").PhasedStage
    parse = given(ctx, "a6.PipelineStage", "schedule").parse_schedule

    def stage() -> Any:
        linear = [
            torch.nn.Linear(width, width, bias=False, device="meta") for _ in range(inputs["parts"])
        ]
        exchanges = [_AllToAll(partners) for _ in range(inputs["parts"] - 1)]
        with region(True):
            return phased_stage(linear, exchanges)

    def empty() -> torch.Tensor:
        return torch.empty(rows, width, device="meta")

    entering, leaving = inputs["entering"], inputs["leaving"]
    ctx.call(
        function,
        parse("\n".join(inputs["schedule"])),
        {number: stage() for number in inputs["stages"]},
        [empty().requires_grad_() if i in entering else None for i in range(count)],
        [empty() if i in leaving else None for i in range(count)],
        lambda output, target: (output * target).sum(),
        groups[ctx.rank // half],
    )
