"""Grades the throughput check of every cheat: `python -m tests.throughput.grade OUT.json [NAME]`.

A cheat holds TASK, EXPECT and functions that take the place of the reference's, as the solutions
in `tests/solutions` do. EXPECT: status of the check, and words of what the student reads.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from grader import tasks
from grader.checks import workers
from grader.checks.run import run_checks
from tests.solutions.grade import build, described

HERE = Path(__file__).parent / "cheats"


def cheats() -> list[Path]:
    """All of them, by name."""
    return sorted(HERE.glob("*.py"))


def grade(file: Path, folder: Path) -> dict[str, Any]:
    """What becomes of the throughput check of the file's task."""
    build(file, folder)
    task = tasks.find(described(file)[0])
    results = run_checks([task], [f"--solution={folder}"], ["-k", "throughput"])
    (only,) = results.to_json()["tasks"]
    (check,) = only["checks"]
    graded: dict[str, Any] = check
    return graded


def main(out: Path, names: list[str]) -> None:
    """Grade all (or those named), and write what became of them."""
    graded = {}
    workers.start()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            for file in cheats():
                if not names or file.stem in names:
                    graded[file.stem] = grade(file, Path(scratch) / "solution")
    finally:
        workers.stop()
    out.write_text(json.dumps(graded), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
