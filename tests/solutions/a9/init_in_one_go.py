"""Right: written straight down, with seeds of its own making."""

import hashlib
import os
import random
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist

from .config import Process

TASK = "a9.initialize"
EXPECT = "passed"

_WHAT_WAS = {}


def initialize(device="auto", seed=0, timeout=300.0):
    if device not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device={device!r}: auto, cpu or cuda")
    numbers = []
    for name, default in (("RANK", "0"), ("WORLD_SIZE", "1")):
        if (name in os.environ) != ("RANK" in os.environ or "WORLD_SIZE" in os.environ):
            raise ValueError(f"{name} is missing of RANK and WORLD_SIZE")
        numbers.append(os.environ.get(name, default))
    numbers.append(os.environ.get("LOCAL_RANK", numbers[0]))
    numbers.append(os.environ.get("LOCAL_WORLD_SIZE", numbers[1]))
    try:
        rank, size, local, local_size = map(int, numbers)
    except ValueError:
        raise ValueError(f"RANK, WORLD_SIZE, LOCAL_… are {numbers}: not all numbers") from None
    if not (0 <= rank < size and 0 <= local < local_size):
        raise ValueError(f"RANK={rank} of {size}, LOCAL_RANK={local} of {local_size}: no such rank")
    gpus = torch.cuda.device_count() if device != "cpu" else 0
    if device == "cuda" and gpus < local_size:
        raise ValueError(f"device=cuda with {gpus} GPUs for {local_size} ranks")
    where = torch.device("cuda", local) if gpus >= local_size else torch.device("cpu")
    every = sorted(os.sched_getaffinity(0))
    cores = [every[local % len(every)]]
    if len(every) >= local_size:
        cores = every[slice(*(len(every) * i // local_size for i in (local, local + 1)))]
    _WHAT_WAS.update(cores=every, threads=torch.get_num_threads(), own=not dist.is_initialized())
    os.sched_setaffinity(0, cores)
    torch.set_num_threads(len(cores))
    if where.type == "cuda":
        torch.cuda.set_device(local)
    if _WHAT_WAS["own"]:
        alone = {"store": dist.HashStore()} if "RANK" not in os.environ else {}
        backend = "nccl" if where.type == "cuda" else "gloo"
        dist.init_process_group(
            backend, rank=rank, world_size=size, timeout=timedelta(seconds=timeout), **alone
        )
    for number, start in enumerate((random.seed, np.random.seed, torch.manual_seed)):
        digest = hashlib.sha256(f"{seed} {rank} {number}".encode()).digest()
        start(int.from_bytes(digest[:4], "little"))
    return Process(dist.get_rank(), dist.get_world_size(), local, local_size, where, tuple(cores))


def shutdown(error=None):
    if not _WHAT_WAS:
        return
    os.sched_setaffinity(0, _WHAT_WAS["cores"])
    torch.set_num_threads(_WHAT_WAS["threads"])
    if _WHAT_WAS["own"]:
        dist.destroy_process_group()
    _WHAT_WAS.clear()
