"""`grader draw` of routers, and the given picture of the load of experts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader.checks import workers
from grader.checks.settings import CannotRun
from grader.report.draw_load import ROUTERS, draw_load
from reference.a8_expert_parallel.picture import load_bars, load_svg

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def _end_workers() -> Iterator[None]:
    yield
    workers.stop()


def _counts(text: str) -> list[int]:
    return [int(line.split()[-1]) for line in text.split("\n") if line.startswith("expert")]


@pytest.mark.parametrize("task", ROUTERS)
def test_every_router_is_drawn(task: str, tmp_path: Path) -> None:
    text = draw_load(task, tokens=100, experts=6, k=2, solution="reference")
    counts = _counts(text)
    assert len(counts) == 6 * (2 if ROUTERS[task] > 1 else 1)
    assert sum(counts[:6]) == 200
    picture = tmp_path / "x.svg"
    said = draw_load(task, tokens=100, experts=6, solution="reference", output=picture)
    assert said.startswith(f"wrote {picture}: mean ")
    assert picture.read_text(encoding="utf-8").startswith("<svg ")


def test_the_bias_evens_the_load() -> None:
    counts = _counts(draw_load("a8.BiasBalancedRouter", experts=8, solution="reference"))
    assert max(counts[8:]) < 0.8 * max(counts[:8])


def test_a_students_own_router_is_drawn(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    shutil.copytree(ROOT / "reference", folder)
    with (folder / "a8_expert_parallel" / "router.py").open("a") as file:
        file.write(
            "\n\ndef top_k_router(logits, k, normalize=True):\n"
            "    return logits[:, :k], torch.full((len(logits), k), 3)\n"
        )
    text = draw_load("a8.top_k_router", tokens=50, experts=4, k=1, solution=str(folder))
    assert _counts(text) == [0, 0, 0, 50]


def test_what_chooses_no_experts_is_refused() -> None:
    with pytest.raises(CannotRun, match="chooses no experts"):
        draw_load("a8.dispatch", solution="reference")
    with pytest.raises(CannotRun, match="expected at most --experts 2"):
        draw_load("a8.top_k_router", experts=2, k=3, solution="reference")


def test_stubs_are_explained() -> None:
    with pytest.raises(CannotRun, match="not implemented yet"):
        draw_load("a8.top_k_router")


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match="cannot write"):
        draw_load("a8.top_k_router", solution="reference", output=tmp_path / "no" / "x.svg")


def test_bars_show_counts_and_mean() -> None:
    assert load_bars([4, 0, 2], width=4).split("\n") == [
        "expert   0 ██|█  4",
        "expert   1   |   0",
        "expert   2 ██|   2",
        "mean 2, largest 4, 2.00 × the mean",
    ]
    assert load_bars([0, 0], width=4).split("\n")[-1] == "mean 0, largest 0"


def test_picture_escapes_and_marks_what_is_above_the_mean() -> None:
    svg = load_svg({"a < b": [4, 0, 2]}, "k > 1")
    assert "a &lt; b: mean 2" in svg
    assert "k &gt; 1" in svg
    assert svg.count("<rect") == 4
    assert svg.count("#d9734e") == 1
