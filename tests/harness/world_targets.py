"""What ranks of a real world may do. Each function is a world's target."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from grader.harness.worlds_group import Rules, register
from grader.harness.worlds_rank import current

CULPRIT = 2
_kept: list[Any] = []


def meet() -> float:
    """All ranks take part; the sum of their numbers."""
    number = torch.tensor(float(dist.get_rank()))
    dist.all_reduce(number)
    return number.item()


def rank_number(payload: Any) -> Any:
    return dist.get_rank(), dist.get_world_size(), payload, meet()


def surroundings(_: object) -> dict[str, Any]:
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    here = current()
    return {
        "environment": {name: os.environ[name] for name in names},
        "cores": sorted(os.sched_getaffinity(0)),
        "device": here.device,
        "cwd": os.getcwd(),
        "backend": dist.get_backend(),
    }


def last_words(_: object) -> None:
    """Ranks leave at different times, the first right after it has sent something."""
    if dist.get_rank() == 0:
        _kept.append(dist.isend(torch.arange(1 << 18), 1))
    else:
        time.sleep(0.05 * dist.get_rank())
    if dist.get_rank() == 1:
        received = torch.empty(1 << 18, dtype=torch.int64)
        dist.recv(received, 0)
        assert received[-1] == (1 << 18) - 1


def one_does(deed: Callable[[], object]) -> Callable[[object], float]:
    """After the ranks have met, one of them does this; then they would meet again."""

    def target(_: object) -> float:
        meet()
        if dist.get_rank() == CULPRIT:
            deed()
        return meet()

    return target


def _fail() -> NoReturn:
    raise KeyError("my own fault")


def _loop() -> NoReturn:
    while True:
        pass


def _flood() -> NoReturn:
    while True:
        os.write(1, b"x" * 65536)


def _allocate() -> NoReturn:
    kept = []
    while True:
        kept.append(bytearray(b"x") * (16 << 20))


segfault = one_does(lambda: ctypes.string_at(0))
killed = one_does(lambda: os.kill(os.getpid(), signal.SIGKILL))
leaves = one_does(lambda: os._exit(0))
exits = one_does(lambda: sys.exit(0))
raises = one_does(_fail)
hangs_in_python = one_does(_loop)
hangs_in_c = one_does(lambda: re.match(r"(a+)+$", "a" * 64 + "b"))
pauses = one_does(lambda: ctypes.CDLL(None).pause())
floods = one_does(_flood)
allocates = one_does(_allocate)


def deadlock(_: object) -> None:
    dist.recv(torch.empty(4), (dist.get_rank() + 1) % dist.get_world_size())


def spins_while_others_return(_: object) -> int:
    if dist.get_rank() == CULPRIT:
        _loop()
    return dist.get_rank()


def calls_collective(name: str) -> None:
    tensor = torch.ones(4)
    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(tensor),
        "broadcast": lambda: dist.broadcast(tensor, 0),
        "barrier": dist.barrier,
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(torch.empty(16), tensor),
        "by_method": lambda: dist.group.WORLD.allreduce([tensor]).wait(),
    }
    current().call(calls[name])


def swallows_the_refusal(_: object) -> None:
    def sneaky() -> None:
        try:
            dist.all_reduce(torch.ones(4))
        except Exception:
            return

    current().call(sneaky)


def in_a_sub_group(_: object) -> None:
    group = dist.new_group([0, 1])  # ours: not refused
    if dist.get_rank() < 2:
        current().call(dist.all_reduce, torch.ones(4), group=group)


def sends_around(_: object) -> float:
    """What a task of point-to-point calls may do, and what the harness itself still can."""

    def ring() -> float:
        rank, size = dist.get_rank(), dist.get_world_size()
        received = torch.empty(())
        ops = [
            dist.P2POp(dist.isend, torch.tensor(float(rank)), (rank + 1) % size),
            dist.P2POp(dist.irecv, received, (rank - 1) % size),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        return received.item()

    return current().call(ring) + 100 * meet()


def staged(_: object) -> dict[str, Any]:
    """Operations of a group that copies all tensors to the host and back."""
    register(Rules(), staged=True, stage_all=True)
    group = dist.new_group(backend="worlds")
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = torch.full((2,), float(rank))
    reduced, gathered = mine.clone(), [torch.empty(2) for _ in range(size)]
    dist.all_reduce(reduced, group=group)
    dist.all_gather(gathered, mine, group=group)
    whole = torch.empty(2 * size)
    dist.all_gather_into_tensor(whole, mine, group=group)
    share = torch.empty(2)
    dist.reduce_scatter_tensor(share, torch.ones(2 * size), group=group)
    root = mine.clone()
    dist.broadcast(root, 1, group=group)
    exchanged = torch.empty(size)
    dist.all_to_all_single(exchanged, torch.arange(size) + 10.0 * rank, group=group)
    received = torch.empty(2)
    sending = dist.isend(mine, (rank + 1) % size, group=group)
    work = dist.irecv(received, (rank - 1) % size, group=group)
    before = received.clone()
    work.wait()
    sending.wait()
    dist.barrier(group=group)
    return {
        "all_reduce": reduced,
        "all_gather": torch.stack(gathered),
        "all_gather_into_tensor": whole,
        "reduce_scatter_tensor": share,
        "broadcast": root,
        "all_to_all_single": exchanged,
        "recv": received,
        "before_wait": before,
    }
