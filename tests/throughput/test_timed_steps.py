"""Steps of training that are timed: right ones count, wrong ones are found whatever their speed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from grader.checks import a3_throughput, a5_throughput, pipeline_throughput, workers
from grader.checks.framework import CheckFailed
from grader.checks.settings import Settings
from grader.checks.throughput import Plan, Throughput
from tests.solutions.grade import ROOT, build

# Bounds that decide nothing: these tests are about what is found wrong, not about speed.
PLAN = Plan(floor=1e-6, full=1e-3, least=3, most=3, second_look=False)
JUDGES: dict[str, Callable[[Throughput], None]] = {
    "a3.DistributedDataParallel": a3_throughput.keeps_up,
    "a5.matmul_reduce_scatter": partial(
        a5_throughput.is_faster, task="a5.matmul_reduce_scatter", only=None
    ),
    "a5.all_gather_matmul": partial(
        a5_throughput.is_faster, task="a5.all_gather_matmul", only=None
    ),
    "a6.run_schedule": partial(pipeline_throughput.keeps_up, task="a6.run_schedule"),
    "a7.run_dualpipe": partial(pipeline_throughput.keeps_up, task="a7.run_dualpipe"),
}
WRONG = {
    "a3.DistributedDataParallel": (
        "class DistributedDataParallel(torch.nn.Module):\n"
        "    def __init__(self, module, group=None, bucket_bytes=0):\n"
        "        super().__init__()\n"
        "        self.module = module\n"
        "    def forward(self, x):\n"
        "        return self.module(x)\n"
        "    def finish_gradient_synchronization(self):\n"
        "        pass\n",
        "rank 0: the gradients are off",
    ),
    "a5.matmul_reduce_scatter": (
        "def matmul_reduce_scatter(a, b, group=None, chunks=4):\n"
        "    return (a @ b).chunk(dist.get_world_size(group))[dist.get_rank(group)].clone()\n",
        "rank 0: the product is off",
    ),
    "a5.all_gather_matmul": (
        "def all_gather_matmul(a, b, group=None):\n"
        "    return (a @ b).repeat(dist.get_world_size(group), 1)\n",
        "rank 0: the product is off",
    ),
    "a6.run_schedule": (
        "_published = run_schedule\n"
        "def run_schedule(schedule, stages, inputs, targets, loss_fn, group=None):\n"
        "    loss = _published(schedule, stages, inputs, targets, loss_fn, group)\n"
        "    return None if loss is None else loss * 2\n",
        "rank 1: the loss is",
    ),
    "a7.run_dualpipe": (
        "def run_dualpipe(schedule, stages, inputs, targets, loss_fn, group=None):\n"
        "    return run_schedule(schedule, stages, inputs, targets, loss_fn, group)\n",
        "the gradients of stage 0 are off",
    ),
}


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    workers.start()
    yield
    workers.stop()


@pytest.fixture(autouse=True)
def _few_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (a3_throughput, a5_throughput):
        monkeypatch.setattr(module, "PLAN", PLAN)
    monkeypatch.setattr(pipeline_throughput, "PLANS", dict.fromkeys(JUDGES, PLAN))


def judged(task: str, folder: Path) -> dict[str, Any]:
    metrics: dict[str, Any] = {}
    settings = Settings(str(folder), folder)
    JUDGES[task](Throughput(settings, metrics, lambda fraction, message="": None))
    return metrics


@pytest.mark.parametrize("task", JUDGES)
def test_the_reference_is_right_and_is_timed(task: str) -> None:
    metrics = judged(task, ROOT / "reference")
    assert metrics["pairs"] == 3 and metrics["ratio"] > 0


@pytest.mark.parametrize("task", JUDGES)
def test_wrong_results_have_no_speed(tmp_path: Path, task: str) -> None:
    code, words = WRONG[task]
    file = tmp_path / "wrong.py"
    file.write_text(f'TASK = "{task}"\nEXPECT = "failed"\n{code}', encoding="utf-8")
    build(file, tmp_path / "solution")
    with pytest.raises(CheckFailed, match="no time counts") as failed:
        judged(task, tmp_path / "solution")
    assert words in failed.value.message


def test_torchs_own_wrapper_is_no_solution(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(
        'TASK = "a3.DistributedDataParallel"\nEXPECT = "failed"\n'
        "class DistributedDataParallel(torch.nn.parallel.DistributedDataParallel):\n"
        "    def __init__(self, module, group=None, bucket_bytes=25 << 20):\n"
        "        super().__init__(module)\n"
        "    def finish_gradient_synchronization(self):\n"
        "        pass\n",
        encoding="utf-8",
    )
    build(file, tmp_path / "solution")
    with pytest.raises(CheckFailed, match="is to be written, not made of"):
        judged("a3.DistributedDataParallel", tmp_path / "solution")
