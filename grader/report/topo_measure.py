"""How fast this machine's links are: memory, gloo between processes, GPUs between each other.

Short, and for orientation: nothing here is judged. Every measurement has a limit of its own, and
what fails is a note, never an exception.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

COPY_BYTES = 64 << 20
MESSAGE_BYTES = 8 << 20
SECONDS = 60.0

#: (from, to) → bytes/s, or None on the diagonal.
Matrix = list[list[float | None]]


@dataclass
class Links:
    """What was measured, in bytes/s and seconds.

    matrices: by what carried the bytes ("gloo between processes", "GPU to GPU", "NCCL").
    labels: what the rows of each matrix are called.
    """

    memory_copy: float | None = None
    gloo_latency: float | None = None
    matrices: dict[str, Matrix] = field(default_factory=dict)
    labels: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def measure() -> Links:
    """Measure all that is there. Takes seconds; raises nothing."""
    links = Links()
    for what, step in (
        ("memory copy", _memory),
        ("gloo", _gloo),
        ("GPU to GPU", _gpus),
        ("NCCL", _nccl),
    ):
        try:
            step(links)
        except Exception as error:
            links.notes.append(f"{what}: {type(error).__name__}: {error}")
    return links


def _best(run: Callable[[], object], repeats: int = 5) -> float:
    """Shortest of several runs, in seconds, after one that does not count."""
    run()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return max(min(times), 1e-9)


def _memory(links: Links) -> None:
    """One core copies a block that no cache holds; its bytes are counted once."""
    import torch

    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        source = torch.zeros(COPY_BYTES, dtype=torch.uint8).fill_(1)
        target = torch.zeros_like(source)
        links.memory_copy = COPY_BYTES / _best(lambda: target.copy_(source))
    finally:
        torch.set_num_threads(threads)


def _gloo(links: Links) -> None:
    world = 2 if (os.cpu_count() or 1) < 8 else 4
    rows = _world(world, "gloo")
    links.gloo_latency = min(row["latency"] for row in rows if row["latency"] is not None)
    links.matrices["gloo between processes"] = _matrix(rows)
    links.labels["gloo between processes"] = [f"core {row['core']}" for row in rows]


def _gpus(links: Links) -> None:
    """Copies between all pairs of GPUs, over peer access where there is some."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count < 2:
        return
    matrix: Matrix = [[None] * count for _ in range(count)]
    blocks = [torch.ones(COPY_BYTES, dtype=torch.uint8, device=f"cuda:{i}") for i in range(count)]
    for a in range(count):
        for b in range(count):
            if a == b:
                continue
            target = torch.empty_like(blocks[b])

            def copy(target: Any = target, source: Any = blocks[a]) -> None:
                target.copy_(source)
                torch.cuda.synchronize(target.device)
                torch.cuda.synchronize(source.device)

            matrix[a][b] = COPY_BYTES / _best(copy)
            if not torch.cuda.can_device_access_peer(a, b):
                links.notes.append(f"GPU{a} cannot reach GPU{b}: copies go through the host")
    links.matrices["GPU to GPU copies"] = matrix
    links.labels["GPU to GPU copies"] = [f"GPU{i}" for i in range(count)]


def _nccl(links: Links) -> None:
    import torch
    import torch.distributed as dist

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count < 2 or not dist.is_nccl_available():
        return
    links.matrices["NCCL between GPUs"] = _matrix(_world(count, "nccl"))
    links.labels["NCCL between GPUs"] = [f"GPU{i}" for i in range(count)]


def _matrix(rows: list[dict[str, Any]]) -> Matrix:
    return [row["rates"] for row in rows]


def _world(size: int, backend: str) -> list[dict[str, Any]]:
    """What the ranks of a real world measured, by rank. Nothing of it outlives this call."""
    import json

    with tempfile.TemporaryDirectory(prefix="grader-topo-") as folder:
        command = [sys.executable, "-m", "grader.report.topo_rank", folder, str(size), backend]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        ranks: list[subprocess.Popen[str]] = []
        try:
            for rank in range(size):
                ranks.append(
                    subprocess.Popen(
                        [*command, str(rank)],
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.PIPE,
                        text=True,
                    )
                )
            deadline = time.monotonic() + SECONDS
            for number, rank_process in enumerate(ranks):
                left = max(deadline - time.monotonic(), 0.1)
                _, error = rank_process.communicate(timeout=left)
                if rank_process.returncode != 0:
                    last = (error.strip().splitlines() or ["no message"])[-1]
                    raise RuntimeError(f"rank {number} of the {backend} world: {last}")
        finally:
            for rank_process in ranks:
                with suppress(ProcessLookupError):
                    rank_process.kill()
                rank_process.wait()
        files = [Path(folder) / f"{rank}.json" for rank in range(size)]
        return [json.loads(file.read_text()) for file in files]
