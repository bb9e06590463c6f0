"""`grader draw`: any solution's schedule as a picture and as text."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader.checks import workers
from grader.checks.settings import CannotRun
from grader.report.draw_schedule import DRAWABLE, draw_schedule

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def _end_workers() -> Iterator[None]:
    yield
    workers.stop()


@pytest.mark.parametrize("task", DRAWABLE)
def test_every_schedule_is_drawn(task: str, tmp_path: Path) -> None:
    picture = tmp_path / "x.svg"
    said = draw_schedule(task, solution="reference", output=picture)
    assert said.startswith(f"wrote {picture}: makespan ")
    assert picture.read_text(encoding="utf-8").startswith("<svg ")
    text = draw_schedule(task, solution="reference")
    assert [line.split()[:2] for line in text.split("\n")[2:]] == [
        ["rank", str(rank)] for rank in range(4)
    ]


def test_costs_are_those_asked_for() -> None:
    said = draw_schedule(
        "a7.dualpipe_schedule", ranks=8, microbatches=20, solution="reference", costs=(1, 1, 1, 2)
    )
    assert "makespan 52, bubble 3, peak activations 9 (F=1 I=1 W=1 FB=2)" in said


def test_a_students_own_schedule_is_drawn(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    shutil.copytree(ROOT / "reference", folder)
    with (folder / "a6_pipeline_parallel" / "schedules.py").open("a") as file:
        file.write(
            '\n\ndef gpipe_schedule(stages, microbatches):\n    return [[Action("F", 0, 0)]]\n'
        )
    said = draw_schedule("a6.gpipe_schedule", solution=str(folder))
    assert said.split("\n")[1:] == [
        "makespan 1, bubble 0, peak activations 1 (F=1 I=1 W=1 FB=3)",
        "rank 0 F0",
    ]


def test_a_schedule_that_hangs_is_explained(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    shutil.copytree(ROOT / "reference", folder)
    with (folder / "a6_pipeline_parallel" / "schedules.py").open("a") as file:
        file.write(
            "\n\ndef gpipe_schedule(stages, microbatches):\n"
            '    return [[Action("B", 0, 0), Action("F", 0, 0)]]\n'
        )
    with pytest.raises(CannotRun, match="comes later on the same rank"):
        draw_schedule("a6.gpipe_schedule", solution=str(folder))


def test_what_is_no_schedule_is_refused() -> None:
    with pytest.raises(CannotRun, match="makes nothing to draw"):
        draw_schedule("a6.partition_layers", solution="reference")


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    nowhere = tmp_path / "no" / "x.svg"
    with pytest.raises(CannotRun, match="cannot write"):
        draw_schedule("a6.gpipe_schedule", solution="reference", output=nowhere)
