"""`grader check a1` as a whole process, beside the same number of 4-rank worlds by plain spawning.

Plain spawning is `torch.multiprocessing.spawn` of 4 processes that initialise gloo and all-reduce
one number. A few such worlds are timed and multiplied by the number that the check ran.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SPAWNED = 3


def _rank(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=4)
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()


def spawn_world() -> float:
    """Seconds for one plainly spawned world of 4."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        mp.spawn(_rank, args=(folder,), nprocs=4)
        return time.perf_counter() - begin


def check(assignment: str) -> tuple[float, int, float]:
    """(seconds, worlds run, points) of grading the reference."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        begin = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "grader", "check", assignment, "--solution", "reference",
             "--json", str(report)],
            check=True,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        seconds = time.perf_counter() - begin
        tasks = json.loads(report.read_text(encoding="utf-8"))["tasks"]
    checks = [check for task in tasks for check in task["checks"]]
    worlds = sum(check["metrics"].get("worlds", 0) for check in checks)
    return seconds, worlds, sum(task["points"] for task in tasks)


def main() -> None:
    """Print both, and their ratio."""
    before = [spawn_world() for _ in range(SPAWNED)]
    seconds, worlds, points = check("a1")
    after = [spawn_world() for _ in range(SPAWNED)]
    world = sorted(before + after)[SPAWNED]
    print(f"grader check a1: {seconds:.1f} s for {worlds} worlds, {points:g} points")
    print(f"one spawned world of 4: {world:.2f} s (median of {2 * SPAWNED})")
    print(
        f"{worlds} spawned worlds: {worlds * world:.0f} s, {worlds * world / seconds:.0f} × as long"
    )
