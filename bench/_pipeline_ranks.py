"""One rank of `pipeline.py`: our executors and torch's, on the same model, in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed import pipelining

from reference.a6_pipeline_parallel.executor import run_schedule
from reference.a6_pipeline_parallel.schedule import Schedule, count_chunks
from reference.a6_pipeline_parallel.schedules import (
    interleaved_schedule,
    one_f_one_b_schedule,
    zero_bubble_schedule,
)
from reference.a6_pipeline_parallel.stage import PipelineStage
from reference.a7_dualpipe.executor import run_dualpipe
from reference.a7_dualpipe.schedules import dualpipe_schedule, dualpipev_schedule
from tests.pipeline.lineup import homes_of

Step = Callable[[], None]


def _stage(number: int, width: int, layers: int) -> nn.Module:
    torch.manual_seed(number)
    block = [nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)]
    for _ in range(layers - 1):
        block += [nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)]
    return nn.Sequential(*block)


def _ours(
    schedule: Schedule, run: Callable[..., Any], rank: int, x: Any, y: Any, width: int, layers: int
) -> tuple[Step, Callable[[], list[torch.Tensor]]]:
    stages, _ = count_chunks(schedule)
    homes = homes_of(schedule)
    mine = sorted({stage for (stage, _), home in homes.items() if home == rank})
    modules = {stage: _stage(stage, width, layers) for stage in mine}
    parts = {stage: PipelineStage(module) for stage, module in modules.items()}

    def entries(stage: int, values: Any) -> Any:
        if stage not in mine:
            return None
        return [v if homes[stage, i] == rank else None for i, v in enumerate(values)]

    def step() -> None:
        for module in modules.values():
            module.zero_grad()
        run(schedule, parts, entries(0, x), entries(stages - 1, y), F.mse_loss)

    return step, lambda: [p.grad for m in modules.values() for p in m.parameters()]


def _theirs(
    name: str, numbers: list[int], stages: int, x: Any, y: Any, width: int, layers: int
) -> tuple[Step, Callable[[], list[torch.Tensor]]]:
    modules = {number: _stage(number, width, layers) for number in numbers}
    parts = [pipelining.PipelineStage(modules[n], n, stages, torch.device("cpu")) for n in numbers]
    kind = getattr(pipelining, name)
    single = name in ("ScheduleGPipe", "Schedule1F1B")
    schedule = kind(parts[0] if single else parts, len(x), loss_fn=F.mse_loss)
    whole_x, whole_y = torch.cat(x), torch.cat(y)

    def step() -> None:
        for module in modules.values():
            module.zero_grad()
        arguments = [whole_x] if 0 in numbers else []
        if stages - 1 in numbers:
            schedule.step(*arguments, target=whole_y, losses=[])
        else:
            schedule.step(*arguments)

    return step, lambda: [p.grad for m in modules.values() for p in m.parameters()]


def compare(rank: int, given: dict[str, Any]) -> dict[str, Any]:
    """Median step times of `given["ours"]` and `given["theirs"]` in turn, or an error."""
    size = dist.get_world_size()
    count, width, layers = given["microbatches"], given["width"], given["layers"]
    torch.manual_seed(0)
    x = [torch.randn(given["rows"], width) for _ in range(count)]
    y = [torch.randn(given["rows"], width) for _ in range(count)]
    schedules: dict[str, tuple[Schedule, Callable[..., Any]]] = {
        "1f1b": (one_f_one_b_schedule(size, count), run_schedule),
        "zb1p": (zero_bubble_schedule(size, count), run_schedule),
        "interleaved": (interleaved_schedule(size, count, 2), run_schedule),
        "dualpipev": (dualpipev_schedule(size, count), run_dualpipe),
        "dualpipe": (dualpipe_schedule(size, count), run_dualpipe),
    }
    schedule, run = schedules[given["ours"]]
    ours, our_gradients = _ours(schedule, run, rank, x, y, width, layers)
    if given["theirs"] in schedules:
        other, run_other = schedules[given["theirs"]]
        theirs, their_gradients = _ours(other, run_other, rank, x, y, width, layers)
    else:
        stages, _ = count_chunks(schedule)
        numbers = [rank] if stages == size else [rank, 2 * size - 1 - rank]
        if given["ours"] == "interleaved":
            numbers = [rank, rank + size]
        try:
            theirs, their_gradients = _theirs(given["theirs"], numbers, stages, x, y, width, layers)
            theirs()
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"[:600]}
    ours()
    difference = 0.0
    if given["theirs"] not in schedules:
        pairs = zip(our_gradients(), their_gradients(), strict=True)
        difference = max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    busy = dict.fromkeys(times, 0.0)
    for _ in range(given["repeats"]):
        for name, step in (("ours", ours), ("theirs", theirs)):
            dist.barrier()
            begin, before = time.perf_counter(), time.process_time()
            step()
            busy[name] += time.process_time() - before
            dist.barrier()
            times[name].append(time.perf_counter() - begin)
    ratios = [b / a for a, b in zip(times["ours"], times["theirs"], strict=True)]
    return {
        "ours": statistics.median(times["ours"]),
        "theirs": statistics.median(times["theirs"]),
        "ratio": statistics.median(ratios),
        "spread": [min(ratios), max(ratios)],
        "difference": difference,
        "busy_ratio": busy["theirs"] / busy["ours"],
    }
