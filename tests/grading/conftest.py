"""Solutions with faults of their own, graded as a student's would be."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
Change = Callable[[Path], None]


def check(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run `grader check` with these arguments."""
    return _python("-m", "grader", "check", *arguments, cwd=cwd)


def _python(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=300,
    )


def build(folder: Path, change: Change) -> None:
    """The reference's a1, after change(folder)."""
    folder.mkdir()
    shutil.copy(ROOT / "reference" / "__init__.py", folder)
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "reference" / "a1_collectives", folder / "a1_collectives", ignore=ignore)
    change(folder)


class Graded:
    """What the grader says of one folder, by task."""

    def __init__(self, tasks: dict[str, dict[str, Any]]) -> None:
        self.tasks = tasks

    def status(self, task: str) -> str:
        """passed, partial, failed, …"""
        return str(self.tasks[task]["status"])

    def messages(self, task: str) -> str:
        """All that the checks of a task had to say."""
        return "\n".join(check["message"] for check in self.tasks[task]["checks"])


GradeAll = Callable[[Mapping[str, tuple[Change, list[str]]]], dict[str, Graded]]


@pytest.fixture(scope="module")
def grade_all(tmp_path_factory: pytest.TempPathFactory) -> GradeAll:
    """grade_all({name: (change, [task ids])}) grades all of them in one go."""

    def run(jobs: Mapping[str, tuple[Change, list[str]]]) -> dict[str, Graded]:
        scratch = tmp_path_factory.mktemp("grading")
        described = {}
        for name, (change, ids) in jobs.items():
            build(scratch / name, change)
            described[name] = [str(scratch / name), ids]
        (scratch / "jobs.json").write_text(json.dumps(described))
        out = scratch / "out.json"
        run = _python("-m", "tests.grading.many", str(scratch / "jobs.json"), str(out))
        assert run.returncode == 0, run.stderr[-3000:]
        return {name: Graded(tasks) for name, tasks in json.loads(out.read_text()).items()}

    return run


def append(text: str, file: str = "collectives.py") -> Change:
    """A change: put `text` at the end of a file of a1."""

    def change(folder: Path) -> None:
        path = folder / "a1_collectives" / file
        path.write_text(f"{path.read_text()}\n\n{text}\n")

    return change


def replace(text: str, file: str = "collectives.py") -> Change:
    """A change: `text` is the whole file."""

    def change(folder: Path) -> None:
        (folder / "a1_collectives" / file).write_text(text)

    return change


def remove(file: str) -> Change:
    """A change: the file is not there."""

    def change(folder: Path) -> None:
        (folder / "a1_collectives" / file).unlink()

    return change
