"""The first and the last thing that every process of a job does.

`torchrun` (or the grader) starts one process for each device and tells it in its environment who it
is. `initialize` makes that true: it joins the others, takes a device and some cores for itself, and
seeds its random generators. `shutdown` leaves the process as it was found, also when something has
gone wrong and the others no longer answer.
"""

from __future__ import annotations

import torch

from .config import Process


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
    raise NotImplementedError("a9.initialize")


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
    raise NotImplementedError("a9.shutdown")
