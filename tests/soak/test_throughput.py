"""Verdicts on speed that are right on a noisy machine: often, and half of the time under load."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from grader import tasks
from grader.checks import workers
from grader.checks.run import run_checks
from tests.solutions.grade import ROOT, build, described

pytestmark = pytest.mark.soak

QUADRATIC = ("a2.ring_all_reduce", "a2.pipelined_ring_all_reduce")
#: How often each throughput check is run on the reference.
RUNS = dict.fromkeys(QUADRATIC, 40) | {
    "a3.DistributedDataParallel": 10,
    "a4.ParallelMLP": 10,
    "a4.ParallelAttention": 10,
    "a6.run_schedule": 10,
    "a7.run_dualpipe": 10,
}
#: Solutions that are right and slow; EXPECT is the share of the points that they may earn.
SLOW = sorted((ROOT / "tests" / "throughput" / "slow").glob("*.py"))
ALL_TO_ALL = """

from ..a1_collectives.collectives import all_reduce_pairwise


def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None):
    all_reduce_pairwise(tensor, op, group)


def pipelined_ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, segment_bytes=1 << 20):
    all_reduce_pairwise(tensor, op, group)
"""


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    workers.start()
    yield
    workers.stop()


@contextmanager
def one_core_busy() -> Iterator[None]:
    """Another process keeps one core busy meanwhile."""
    core = min(os.sched_getaffinity(0))
    # It ends with this process, also when that is killed.
    spin = f"while os.getppid() == {os.getpid()}: pass"
    code = f"import os\nos.sched_setaffinity(0, {{{core}}})\n{spin}"
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as busy:
        try:
            yield
        finally:
            busy.kill()


def earned(folder: Path, task: str) -> tuple[float, str]:
    """The share of the throughput points, and what was measured."""
    results = run_checks([tasks.find(task)], [f"--solution={folder}"], ["-k", "throughput"])
    (graded,) = results.to_json()["tasks"]
    (check,) = graded["checks"]
    metrics = check["metrics"]
    assert check["status"] in ("passed", "failed") and "ratio" in metrics, check
    words = f"{metrics['ratio']} ({metrics['ratio_low']} … {metrics['ratio_high']})"
    share = check["points"] / check["max_points"]
    return share, f"{words}, {metrics['pairs']} pairs, {metrics['looks']} looks"


def repeated(folder: Path, task: str, runs: int) -> Iterator[tuple[float, str]]:
    """`earned` again and again, every other time beside a busy process; told as it goes."""
    for number in range(runs):
        with one_core_busy() if number % 2 else nullcontext():
            share, words = earned(folder, task)
        line = f"{task}, run {number}: {share:.2f} of the points at {words}"
        print(line, flush=True)
        yield share, line


@pytest.mark.parametrize(("task", "runs"), RUNS.items())
def test_the_reference_never_loses_a_point(task: str, runs: int) -> None:
    lost = [line for share, line in repeated(ROOT / "reference", task, runs) if share < 1.0]
    assert not lost


@pytest.mark.parametrize("task", QUADRATIC)
def test_the_quadratic_all_reduce_never_earns_more_than_a_fifth(tmp_path: Path, task: str) -> None:
    folder = tmp_path / "solution"
    for assignment in ("a1_collectives", "a2_ring_all_reduce"):
        shutil.copytree(ROOT / "reference" / assignment, folder / assignment)
    ring = folder / "a2_ring_all_reduce" / "ring.py"
    ring.write_text(ring.read_text(encoding="utf-8") + ALL_TO_ALL, encoding="utf-8")
    too_much = [line for share, line in repeated(folder, task, 10) if share > 0.2]
    assert not too_much


@pytest.mark.parametrize("file", SLOW, ids=lambda file: file.stem)
def test_a_slow_solution_never_earns_more_than_a_fifth(tmp_path: Path, file: Path) -> None:
    task, most = described(file)
    build(file, tmp_path / "solution")
    too_much = [line for share, line in repeated(tmp_path / "solution", task, 6) if share > most]
    assert not too_much
