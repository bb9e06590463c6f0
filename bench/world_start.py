"""Seconds from asking for a world of 4 real ranks to having what it returned, gloo and all.

Each rank all-reduces one number. The server has imported torch before; the first world is not
counted. A world of plainly spawned processes is timed by `start`.
"""

from __future__ import annotations

import statistics
import time

from grader.harness import WorkerServer
from grader.harness.worlds import run_world

WORLDS = 41
SIZES = (1, 2, 4, 8)


def all_reduce_one(_: object) -> float:
    """What every rank does."""
    import torch
    import torch.distributed as dist

    one = torch.ones(1)
    dist.all_reduce(one)
    return one.item()


def main() -> None:
    """Print a row for each number of ranks."""
    print(f"{'ranks':>6} {'median':>9} {'fastest':>9} {'slowest':>9}   of {WORLDS} worlds")
    with WorkerServer(preload=["grader.harness.worlds_rank", "bench.world_start"]) as server:
        server.wait_ready()
        for ranks in SIZES:
            seconds = []
            for _ in range(WORLDS + 1):
                begin = time.perf_counter()
                reply = run_world(server, "bench.world_start:all_reduce_one", [None] * ranks)
                seconds.append(time.perf_counter() - begin)
                if not reply.ok or reply.values != [float(ranks)] * ranks:
                    raise SystemExit(f"a world of {ranks} failed: {reply.detail}")
            row = seconds[1:]
            print(
                f"{ranks:>6} {statistics.median(row) * 1e3:>6.0f} ms {min(row) * 1e3:>6.0f} ms "
                f"{max(row) * 1e3:>6.0f} ms",
                flush=True,
            )
