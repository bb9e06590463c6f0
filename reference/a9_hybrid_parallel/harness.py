"""The first and the last thing that every process of a job does.

`torchrun` (or the grader) starts one process for each device and tells it in its environment who it
is. `initialize` makes that true: it joins the others, takes a device and some cores for itself, and
seeds its random generators. `shutdown` leaves the process as it was found, also when something has
gone wrong and the others no longer answer.
"""

from __future__ import annotations

# BEGIN SOLUTION
import os
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import numpy as np

# END SOLUTION
import torch

# BEGIN SOLUTION
import torch.distributed as dist

# END SOLUTION
from .config import Process

# BEGIN SOLUTION
#: What is to be undone, last thing first.
_undo: list[Callable[[BaseException | None], None]] = []


def _number(name: str, low: int, high: int) -> int:
    """A variable that is to hold low … high − 1."""
    text = os.environ.get(name, "")
    if not text.isdigit() or not low <= int(text) < high:
        raise ValueError(f"{name}={text!r} in the environment: expected {low} … {high - 1}")
    return int(text)


def _place() -> tuple[int, int, int, int]:
    """(rank, world size, local rank, local world size) of the environment; alone without one."""
    names = ("RANK", "WORLD_SIZE")
    found = [name for name in names if name in os.environ]
    if not found:
        return 0, 1, 0, 1
    if len(found) < len(names):
        missing = next(name for name in names if name not in found)
        raise ValueError(f"{found[0]} is set, but {missing} is not: start with torchrun")
    world_size = _number("WORLD_SIZE", 1, 1 << 31)
    rank = _number("RANK", 0, world_size)
    if "LOCAL_RANK" not in os.environ:
        return rank, world_size, rank, world_size
    local_world_size = world_size
    if "LOCAL_WORLD_SIZE" in os.environ:
        local_world_size = _number("LOCAL_WORLD_SIZE", 1, world_size + 1)
    return rank, world_size, _number("LOCAL_RANK", 0, local_world_size), local_world_size


def _choose_device(wanted: str, local_rank: int, local_world_size: int) -> torch.device:
    if wanted not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device={wanted!r}: expected 'auto', 'cpu' or 'cuda'")
    gpus = torch.cuda.device_count() if wanted != "cpu" else 0
    if wanted == "cuda" and gpus < local_world_size:
        raise ValueError(
            f"device='cuda': {local_world_size} ranks on this machine, but {gpus} GPUs"
        )
    return torch.device("cuda", local_rank) if gpus >= local_world_size else torch.device("cpu")


def _bind_cores(local_rank: int, local_world_size: int) -> tuple[int, ...]:
    """Keep to an even, contiguous share of the cores; with too few of them, ranks take turns."""
    before = os.sched_getaffinity(0)
    threads = torch.get_num_threads()
    cores = sorted(before)
    if len(cores) < local_world_size:
        own = [cores[local_rank % len(cores)]]
    else:
        begin, end = (len(cores) * r // local_world_size for r in (local_rank, local_rank + 1))
        own = cores[begin:end]

    def undo(error: BaseException | None) -> None:
        os.sched_setaffinity(0, before)
        torch.set_num_threads(threads)

    os.sched_setaffinity(0, own)
    _undo.append(undo)
    torch.set_num_threads(len(own))
    return tuple(own)


def _join(rank: int, world_size: int, device: torch.device, timeout: float) -> None:
    options: dict[str, object] = {"timeout": timedelta(seconds=timeout)}
    if "RANK" not in os.environ:
        options["store"] = dist.HashStore()
    if device.type == "cuda":
        options["device_id"] = device
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, rank=rank, world_size=world_size, **options)  # type: ignore[arg-type]

    def undo(error: BaseException | None) -> None:
        if not dist.is_initialized():
            return
        if error is not None:
            # Whoever has failed waits for nobody, and nobody is to wait for him.
            with suppress(Exception):
                if device.type == "cuda":
                    dist.distributed_c10d._abort_process_group()
                else:
                    dist.destroy_process_group()
            return
        try:
            dist.barrier()  # leaving first would cut the connections that others still need
        finally:
            dist.destroy_process_group()

    _undo.append(undo)


# END SOLUTION


def initialize(device: str = "auto", seed: int = 0, timeout: float = 300.0) -> Process:
    """Become a rank of the job that the environment describes.

    Reads RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE (and torch MASTER_ADDR, MASTER_PORT), as
    ``torchrun`` sets them. Without RANK and WORLD_SIZE the world is this process alone. Where the
    default process group exists already it is used as it is.

    Afterwards: the default process group is there (NCCL on GPUs, else gloo), waiting for others no
    longer than `timeout`; the current CUDA device is number LOCAL_RANK; the calling thread runs on
    its share of the cores it had: of c cores, local rank i of n has number i·c//n … (i+1)·c//n − 1
    in their order, or core i mod c where there are fewer cores than ranks; torch uses as many
    threads. ``torch``, ``random`` and ``numpy.random`` are seeded with `seed` + rank: each
    rank draws its own numbers, and the same ones every time.

    Args:
        device: "cpu", "cuda", or "auto": CUDA where every local rank has a GPU of its own.
        seed: ≥ 0.
        timeout: seconds.

    Raises:
        ValueError: one of RANK and WORLD_SIZE is missing; a variable is no number, or not in its
            range; `device` is another word; "cuda" with fewer GPUs than local ranks. The message
            names the variable or argument and both values; nothing is left changed.
        RuntimeError: it is called a second time without ``shutdown``.
    """
    # BEGIN SOLUTION
    if _undo:
        raise RuntimeError("initialize() was called before: call shutdown() first")
    rank, world_size, local_rank, local_world_size = _place()
    chosen = _choose_device(device, local_rank, local_world_size)
    try:
        cores = _bind_cores(local_rank, local_world_size)
        if chosen.type == "cuda":
            torch.cuda.set_device(chosen)
        if dist.is_initialized():
            rank, world_size = dist.get_rank(), dist.get_world_size()
        else:
            _join(rank, world_size, chosen, timeout)
    except BaseException as error:
        shutdown(error)
        raise
    torch.manual_seed(seed + rank)
    random.seed(seed + rank)
    np.random.seed((seed + rank) % 2**32)
    return Process(rank, world_size, local_rank, local_world_size, chosen, cores)
    # END SOLUTION


def shutdown(error: BaseException | None = None) -> None:
    """Undo what ``initialize`` did: no process group is left, cores and threads are as before.

    A process group that was there before ``initialize`` stays. Without an `error` all ranks call
    it, and none leaves before all have come. Called again, or without ``initialize``, it does
    nothing.

    Args:
        error: what went wrong, if this rank ends early. Then it waits for no other rank, which may
            be gone, or waiting for a message that will never come; it returns within seconds, and
            raises nothing.
    """
    # BEGIN SOLUTION
    failed: BaseException | None = None
    while _undo:
        try:
            _undo.pop()(error or failed)
        except Exception as another:
            failed = failed or another
    if failed is not None and error is None:
        raise failed
    # END SOLUTION
