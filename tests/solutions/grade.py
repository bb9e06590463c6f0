"""Grades every solution of one folder here: `python -m tests.solutions.grade a1 OUT.json`.

A file holds TASK, EXPECT and functions that take the place of the reference's. EXPECT is "passed"
or a dict: status of the task; check, part of the name of a check that must fail; cause, part of
what that check must name as the likely cause.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from grader import tasks
from grader.checks import workers
from grader.checks.run import run_checks
from tests.solutions import only

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def described(file: Path) -> tuple[str, Any]:
    """(TASK, EXPECT) of a file, without running it."""
    found = {}
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node.value
    return ast.literal_eval(found["TASK"]), ast.literal_eval(found["EXPECT"])


def files(key: str) -> list[Path]:
    """The solutions of an assignment, by name."""
    return sorted(p for p in (HERE / key).glob("*.py") if p.name != "__init__.py")


def borrowed(assignment: str) -> set[str]:
    """Other assignments whose given modules this one imports."""
    sources = (ROOT / "reference" / assignment).glob("*.py")
    imports = re.compile(r"(?:^from \.\.|\"(?=a\d_))(\w+)", re.MULTILINE)
    return {name for source in sources for name in imports.findall(source.read_text("utf-8"))}


def build(file: Path, folder: Path) -> None:
    """The reference with the file's functions in place of its own."""
    task = tasks.find(described(file)[0])
    needed = {task.assignment, "__init__.py", *borrowed(task.assignment)}
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(
        ROOT / "reference",
        folder,
        ignore=lambda where, names: [
            name
            for name in names
            if name == "__pycache__" or (Path(where) == ROOT / "reference" and name not in needed)
        ],
    )
    module = folder / task.path
    solved = module.read_text(encoding="utf-8")
    module.write_text(f"{solved}\n\n{file.read_text(encoding='utf-8')}", encoding="utf-8")


def grade(file: Path, folder: Path) -> dict[str, Any]:
    """What becomes of the file's task; of a wrong solution, only of the checks that must fail."""
    build(file, folder)
    name, expected = described(file)
    only.NAME = "" if expected == "passed" else expected["check"]
    begin = time.perf_counter()
    # Speed is judged in tests/throughput, on purpose-made solutions, and in `make soak`.
    options = [f"--solution={folder}", "--no-throughput"]
    results = run_checks([tasks.find(name)], options, ["-p", "tests.solutions.only"])
    outcome = results.to_json()["tasks"][0]
    return outcome | {"wall": time.perf_counter() - begin}


def main(key: str, out: Path, names: list[str]) -> None:
    """Grade all files of the folder (or those named), and write what became of them."""
    graded = {}
    workers.start()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            for file in files(key):
                if not names or file.stem in names:
                    graded[file.stem] = grade(file, Path(scratch) / "solution")
    finally:
        workers.stop()
    out.write_text(json.dumps(graded), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
