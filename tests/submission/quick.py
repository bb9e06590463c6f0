"""A batch whose examiner only counts: for tests of all that is around the examiner.

`python -m tests.submission.quick ARGUMENTS OF grader batch` is such a batch as a process.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from grader import tasks
from grader.submission import executors
from grader.submission.batch import BatchOptions
from grader.submission.work import Outcome, Work
from tests.submission.repositories import repository

TOLD = BatchOptions(throughput=False, allow_local=True, unsandboxed=True, seed=7)
FILE = "a1_collectives/collectives.py"


def grade(work: Work, stopped: threading.Event | None = None) -> Outcome:
    """A file is worth the number that it holds; "error", "timeout" and "slow" are what they say."""
    text = work.files.get(FILE, b"0").decode()
    if text == "slow":
        time.sleep(0.3)
        text = "3"
    if text in ("error", "timeout"):
        return Outcome(text, f"it is a {text}", None, 0.1)  # type: ignore[arg-type]
    listed = [_task(task, float(text), work) for task in work.tasks]
    total = {key: sum(t[key] for t in listed) for key in ("points", "max_points")}
    document = {"seed": work.seed, "tasks": listed, "skipped_points": 0.0, "seconds": 0.1, **total}
    return Outcome("graded", "", document, 0.1)


def _task(task: str, points: float, work: Work) -> dict[str, Any]:
    most = tasks.find(task).points
    check = {
        "check": "counts", "status": "passed" if points == most else "failed", "points": points,
        "max_points": most, "message": "", "metrics": {},
    }  # fmt: skip
    timed = {
        "check": "is fast", "status": "skipped", "points": 0.0, "max_points": 2.0,
        "message": "throughput is not measured with --no-throughput", "metrics": {},
    }  # fmt: skip
    if work.part == "throughput":
        timed |= {"status": "passed", "points": 2.0, "metrics": {"ratio": 1.25}, "message": ""}
        check |= {"points": -1000.0}  # nobody may look at it
    return {
        "task": task, "assignment": "a1_collectives", "status": "partial", "points": points,
        "max_points": most, "skipped_points": 2.0, "seconds": 0.1, "checks": [check, timed],
    }  # fmt: skip


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Examiners of this process only count."""
    monkeypatch.setattr(executors, "grade", grade)


def sheet_of(folder: Path, contents: dict[str, str], name: str = "sheet.csv") -> Path:
    """Repositories with these files, and the sheet that names them."""
    lines = ["student,link"]
    for student, content in contents.items():
        sha = repository(folder / student, {f"assignments/{FILE}": content})
        lines.append(f"{student},{folder / student}/tree/{sha}")
    sheet = folder / name
    sheet.write_text("\n".join(lines), encoding="utf-8")
    return sheet


if __name__ == "__main__":
    executors.grade = grade
    from grader.cli import main

    sys.exit(main(["batch", *sys.argv[1:]]))
