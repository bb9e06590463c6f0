"""Contenders of small measurements. Each function prepares and returns a step."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing import shared_memory
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from grader.harness.worlds_rank import current

Buffers = dict[str, torch.Tensor]
Step = Callable[[], object]


def library(_: object, buffers: Buffers) -> Step:
    return lambda: dist.all_reduce(buffers["tensor"])


def far_too_much(_: object, buffers: Buffers) -> Step:
    """Does much more than it must."""

    def step() -> None:
        copy = buffers["tensor"].clone()
        for _ in range(20):
            dist.all_reduce(copy)
        dist.all_reduce(buffers["tensor"])

    return step


def nothing(_: object, buffers: Buffers) -> Step:
    return lambda: None


def keeps_the_first_result(_: object, buffers: Buffers) -> Step:
    kept: list[torch.Tensor] = []

    def step() -> None:
        if kept:
            buffers["tensor"].copy_(kept[0])
        else:
            dist.all_reduce(buffers["tensor"])
            kept.append(buffers["tensor"].clone())

    return step


def works_in_every_third_call(_: object, buffers: Buffers) -> Step:
    calls = 0

    def step() -> None:
        nonlocal calls
        if calls % 3 == 0:
            for _ in range(3):
                dist.all_reduce(buffers["tensor"])
        calls += 1

    return step


def goes_on_in_a_thread(_: object, buffers: Buffers) -> Step:
    """Says that it is done, and works on."""

    def late() -> None:
        time.sleep(0.2)
        dist.all_reduce(buffers["tensor"])

    return lambda: threading.Thread(target=late, daemon=True).start()


def works_between_calls(_: object, buffers: Buffers) -> Step:
    """A thread reduces whatever turns up in the buffer before anybody asks."""
    done = torch.zeros(())

    def early() -> None:
        while True:
            if buffers["tensor"][0] != done:
                dist.all_reduce(buffers["tensor"])
                done.copy_(buffers["tensor"][0])

    threading.Thread(target=early, daemon=True).start()
    return lambda: None


def past_the_network(_: object, buffers: Buffers) -> Step:
    """The ranks share memory of their own."""
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = buffers["tensor"]
    nbytes = mine.numel() * 4
    name = f"tp-test-{os.getppid()}"
    if rank == 0:
        memory = shared_memory.SharedMemory(name, create=True, size=size * nbytes)
    dist.barrier()
    if rank:
        memory = shared_memory.SharedMemory(name)
    dist.barrier()
    if rank == 0:
        memory.unlink()
    rows = torch.frombuffer(memory.buf, dtype=torch.float32).view(-1)[: size * mine.numel()]
    rows = rows.view(size, -1)

    def step() -> None:
        rows[rank].copy_(mine)
        dist.barrier()
        mine.copy_(rows.sum(0))
        dist.barrier()

    step.memory = memory  # type: ignore[attr-defined]
    return step


def patches(_: object, buffers: Buffers) -> Step:
    time.perf_counter = lambda: 0.0  # type: ignore[assignment]
    torch.allclose = lambda *a, **k: True  # type: ignore[assignment]
    return library(None, buffers)


def slows_the_library(_: object, buffers: Buffers) -> Step:
    """Patches torch's all-reduce for whoever is compared with it."""
    original = dist.all_reduce

    def slow(*arguments: Any, **options: Any) -> Any:
        time.sleep(3.0)
        return original(*arguments, **options)

    dist.all_reduce = slow  # type: ignore[assignment]
    return lambda: original(buffers["tensor"])


def nan(_: object, buffers: Buffers) -> Step:
    return lambda: buffers["tensor"].fill_(float("nan"))


def calls_the_library(_: object, buffers: Buffers) -> Step:
    return lambda: current().call(dist.all_reduce, buffers["tensor"])


def dies_in_the_third_call(_: object, buffers: Buffers) -> Step:
    calls = 0

    def step() -> None:
        nonlocal calls
        calls += 1
        if calls == 3 and dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(buffers["tensor"])

    return step


def hangs(_: object, buffers: Buffers) -> Step:
    def step() -> None:
        while dist.get_rank() == 1:
            pass
        dist.all_reduce(buffers["tensor"])

    return step


def cannot_prepare(_: object, buffers: Buffers) -> NoReturn:
    raise NotImplementedError("a2.ring_all_reduce")


def leaves(_: object, buffers: Buffers) -> Step:
    return lambda: os._exit(0)


def shrinks_the_memory(_: object, buffers: Buffers) -> Step:
    """Would kill the examiner, who reads what is no longer there."""

    def step() -> None:
        for fd in range(3, 16):
            try:
                os.ftruncate(fd, 0)
            except OSError:
                continue
        dist.all_reduce(buffers["tensor"])

    return step
