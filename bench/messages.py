"""Host time per message of the simulated cluster, and how it grows with the number of ranks.

A ring all-reduce of 4 elements per rank, all ranks in one process on one core, values and
sanitizer on, no FLOP counting. The loop of pure Python beside it tells how fast the core was.
"""

from __future__ import annotations

import os
import time
from typing import Any

import torch
import torch.distributed as dist

from grader.fabric import simulate

RANKS = (8, 16, 32, 64, 128, 256, 512)


def ring(rank: int, _: Any) -> None:
    """A plain ring: reduce-scatter, then all-gather."""
    size = dist.get_world_size()
    chunks = list(torch.ones(4 * size).chunk(size))
    buffer = torch.empty(4)
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):
        sent, got = chunks[(rank - step) % size], chunks[(rank - step - 1) % size]
        exchange(sent, buffer, right, left)
        got.add_(buffer)
    for step in range(size - 1):
        exchange(chunks[(rank + 1 - step) % size], chunks[(rank - step) % size], right, left)


def exchange(sent: torch.Tensor, received: torch.Tensor, right: int, left: int) -> None:
    """Send to the right and receive from the left at once."""
    ops = [dist.P2POp(dist.isend, sent, right), dist.P2POp(dist.irecv, received, left)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()


def python_loop() -> float:
    """Seconds for a million additions."""
    begin, total = time.perf_counter(), 0
    for number in range(1_000_000):
        total += number
    return time.perf_counter() - begin


def main() -> None:
    """Print a row for each number of ranks."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    simulate(ring, 4)
    print(f"{'ranks':>6} {'messages':>9} {'seconds':>8} {'µs/message':>11} {'python loop':>12}")
    for ranks in RANKS:
        loop = python_loop()
        result = simulate(ring, ranks)
        if result.findings:
            raise SystemExit(result.findings[0].message)
        messages = 2 * ranks * (ranks - 1)
        print(
            f"{ranks:>6} {messages:>9} {result.seconds:>8.2f} "
            f"{result.seconds / messages * 1e6:>11.1f} {loop * 1e3:>9.1f} ms",
            flush=True,
        )
    os.sched_setaffinity(0, allowed)
    torch.set_num_threads(threads)
