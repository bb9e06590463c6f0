"""What runs in a worker with a GPU: a kernel beside a copy, in turn, with cold caches."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from grader.checks.drivers.kernels import use_cache
from grader.checks.drivers.kernels_work import make
from kernels.ops import Kernels

_CACHE_BYTES = 256 << 20  # more than any L2 holds


def measure(payload: dict[str, Any]) -> dict[str, Any]:
    """Time `payload["kernel"]` ("reduce_add_bf16") on operands of `payload["nbytes"]` bytes.

    Two sets of operands take turns, and more than the L2 holds is written before each launch.
    Returns seconds (per launch), copy_seconds (of as many bytes), their_seconds (torch's own
    operation), nbytes, and agrees: whether every set gave what torch gives, before, after and in
    two of the timed launches.
    """
    use_cache(payload)
    kernels = Kernels(Path(payload["folder"]) / payload["file"])
    works = [make(kernels, payload["kernel"], payload["nbytes"]) for _ in range(2)]
    agrees = all(work.agree(_call) for work in works)
    # Which launches are looked at nobody can know.
    looked_at = random.SystemRandom().sample(range(2, payload["repeats"] + 2), 2)
    half = works[0].nbytes // 2
    source, target = (torch.empty(half, dtype=torch.uint8, device="cuda") for _ in range(2))
    flush = torch.empty(_CACHE_BYTES, dtype=torch.uint8, device="cuda")
    seconds: dict[str, list[float]] = {"seconds": [], "copy_seconds": [], "their_seconds": []}

    def timed_launch(ours: Callable[[], Any]) -> None:
        seconds["seconds"].append(_time(ours, flush))

    for i in range(payload["repeats"] + 2):
        work = works[i % 2]
        timed = (("seconds", work.ours), ("copy_seconds", lambda: target.copy_(source)),
                 ("their_seconds", work.theirs))  # fmt: skip
        for name, function in timed:
            if name == "seconds" and i in looked_at:
                agrees = work.agree(timed_launch) and agrees
                continue
            taken = _time(function, flush)
            if i >= 2:  # the first of each set warms up
                seconds[name].append(taken)
    agrees = agrees and all(work.agree(_call) for work in works)
    return {"nbytes": works[0].nbytes, "agrees": agrees, **seconds}


def _call(function: Callable[[], Any]) -> None:
    function()


def _time(function: Callable[[], Any], flush: torch.Tensor) -> float:
    flush.fill_(1)
    cuda: Any = torch.cuda
    begin, end = (cuda.Event(enable_timing=True) for _ in range(2))
    # Hold the GPU back until everything is queued, so that the host's part is not timed.
    cuda._sleep(200_000)
    begin.record()
    function()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e-3
