"""One rank of the small world that `grader topo` measures: `python -m grader.report.topo_rank`.

Arguments: folder, world size, backend, rank. Writes `RANK.json` with the core it ran on, the
bytes/s at which it sent to every rank, and the latency of a message to its first peer in seconds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from grader.report.topo_measure import MESSAGE_BYTES

MESSAGES = 5
PINGS = 50


def main(folder: Path, size: int, backend: str, rank: int) -> None:
    """Measure all pairs, one after the other: nobody else sends meanwhile."""
    core = _own_core(rank, size)
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    store = dist.FileStore(str(folder / "store"), size)  # type: ignore[attr-defined]
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=size, timeout=timedelta(seconds=40)
    )
    block = torch.ones(MESSAGE_BYTES, dtype=torch.uint8, device=device)
    token = torch.ones(1, dtype=torch.uint8, device=device)
    rates: list[float | None] = [None] * size
    latency: float | None = None
    for src in range(size):
        for dst in range(size):
            if src == dst or rank not in (src, dst):
                continue
            seconds = _seconds(block, token, src, dst, rank, MESSAGES)
            if rank == src:
                rates[dst] = MESSAGE_BYTES * MESSAGES / seconds
            trip = _seconds(token, token, src, dst, rank, PINGS, both_ways=True)
            if rank == src and latency is None:
                latency = trip / PINGS / 2
    (folder / f"{rank}.json").write_text(
        json.dumps({"core": core, "rates": rates, "latency": latency})
    )
    dist.barrier()
    dist.destroy_process_group()


def _seconds(
    message: torch.Tensor,
    token: torch.Tensor,
    src: int,
    dst: int,
    rank: int,
    count: int,
    both_ways: bool = False,
) -> float:
    """Time of `count` messages from src to dst, by the sender's clock, to the last's arrival."""
    for warm_up in (True, False):
        begin = time.perf_counter()
        for _ in range(1 if warm_up else count):
            if rank == src:
                dist.send(message, dst)
                if both_ways:
                    dist.recv(message, dst)
            else:
                dist.recv(message, src)
                if both_ways:
                    dist.send(message, src)
        if rank == src:
            dist.recv(token, dst)
        else:
            dist.send(token, src)
        if message.is_cuda:
            torch.cuda.synchronize()
    return max(time.perf_counter() - begin, 1e-9)


def _own_core(rank: int, size: int) -> int:
    """Stay on one core, far from the other ranks'. Where that is forbidden, anywhere (-1)."""
    try:
        cores = sorted(os.sched_getaffinity(0))
        core = cores[rank * len(cores) // size]
        os.sched_setaffinity(0, {core})
    except (AttributeError, OSError):
        return -1
    return core


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
