"""The timed dispatch: right ones count, wrong ones are found whatever their speed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grader.checks import a8_throughput, workers
from grader.checks.framework import CheckFailed
from grader.checks.settings import Settings
from grader.checks.throughput import Plan, Throughput
from tests.solutions.grade import ROOT, build

# Bounds that decide nothing: these tests are about what is found wrong, not about speed.
PLAN = Plan(floor=1e-6, full=1e-3, least=3, most=3, second_look=False)
WRONG = {
    "unsorted": (
        "_published = dispatch\n"
        "def dispatch(tokens, indices, num_experts, group=None):\n"
        "    sent = _published(tokens, indices, num_experts, group)\n"
        "    return Dispatched(sent.tokens.flip(0), sent.expert_counts, None)\n",
        "rank 0: rows: ",
    ),
    "miscounted": (
        "_published = dispatch\n"
        "def dispatch(tokens, indices, num_experts, group=None):\n"
        "    sent = _published(tokens, indices, num_experts, group)\n"
        "    return Dispatched(sent.tokens, sent.expert_counts + 1, None)\n",
        "rank 0: expert_counts are ",
    ),
    "unsent": (
        "def dispatch(tokens, indices, num_experts, group=None):\n"
        "    counts = torch.full((num_experts // dist.get_world_size(group),), 1008)\n"
        "    return Dispatched(tokens.repeat(2, 1), counts, None)\n",
        "rank 0: rows: ",
    ),
}


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    workers.start()
    yield
    workers.stop()


@pytest.fixture(autouse=True)
def _few_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(a8_throughput, "PLAN", PLAN)


def judged(folder: Path) -> dict[str, Any]:
    metrics: dict[str, Any] = {}
    settings = Settings(str(folder), folder)
    a8_throughput.keeps_up(Throughput(settings, metrics, lambda fraction, message="": None))
    return metrics


def test_the_reference_is_right_and_is_timed() -> None:
    metrics = judged(ROOT / "reference")
    assert metrics["pairs"] == 3
    assert metrics["ratio"] > 0


@pytest.mark.parametrize("name", WRONG)
def test_wrong_results_have_no_speed(tmp_path: Path, name: str) -> None:
    code, words = WRONG[name]
    file = tmp_path / "wrong.py"
    file.write_text(f'TASK = "a8.dispatch"\nEXPECT = "failed"\n{code}', encoding="utf-8")
    build(file, tmp_path / "solution")
    with pytest.raises(CheckFailed, match="no time counts") as failed:
        judged(tmp_path / "solution")
    assert words in failed.value.message


def test_every_rank_sends_every_other_equally_many() -> None:
    timed = a8_throughput.problem()
    inputs = timed.problem.make(np.random.default_rng(1))
    for given in inputs:
        owners = given["indices"] // (a8_throughput.EXPERTS // a8_throughput.RANKS)
        pairs = [int((owners == rank).any(1).sum()) for rank in range(a8_throughput.RANKS)]
        assert pairs == [len(given["pairs"]) // a8_throughput.RANKS] * a8_throughput.RANKS
