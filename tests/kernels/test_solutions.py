"""Each wrong kernel fails the check it should, at the right line; each unusual right one passes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.solutions.kernels.build import ROOT, Solution, build, solutions

SOLUTIONS = solutions()

GRADE = """
import gc, json, sys
from pathlib import Path
import pytest
from grader.checks.plugin import Attachment
import grader.checks
out = {}
class Only:
    # Runs only the check that is to fail: others cost time and say nothing here.
    def __init__(self, check):
        self.check = check
    def pytest_collection_modifyitems(self, items):
        items[:] = [i for i in items if self.check in i.get_closest_marker("check").kwargs["name"]]
ini = Path(grader.checks.__file__).with_name("pytest.ini")
for name, key, task, folder, check in json.load(sys.stdin):
    attachment = Attachment((), True)
    file = ini.with_name(f"test_{key}_kernels.py")
    options = ["-p", "grader.checks.plugin", "-c", str(ini), "--no-throughput", "--device=cpu",
               f"--solution={folder}", f"--task={task}", str(file)]
    gc.freeze()  # pytest looks for garbage ten times as it ends
    pytest.main(options, plugins=[attachment, Only(check)])
    out[name] = attachment.recorder.results.to_json()["tasks"][0]
Path(sys.argv[1]).write_text(json.dumps(out))
"""


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Results by file, graded in one process; the line of `// HERE` beside each."""
    folder = tmp_path_factory.mktemp("kernels")
    lines, rows = {}, []
    for solution in SOLUTIONS:
        name = _name(solution)
        lines[name] = build(solution, folder / name.replace("/", "_"))
        key = solution.task.split(".")[0]
        built = str(folder / name.replace("/", "_"))
        rows.append([name, key, solution.task, built, solution.check])
    out = folder / "out.json"
    run = subprocess.run(
        [sys.executable, "-c", GRADE, str(out)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        input=json.dumps(rows),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    results = json.loads(out.read_text(encoding="utf-8"))
    return {name: task | {"line": lines[name]} for name, task in results.items()}


def _name(solution: Solution) -> str:
    return f"{solution.file.parent.name}/{solution.file.stem}"


def _told(task: dict[str, Any]) -> str:
    lines = [f"{task['status']} {task['points']:g}/{task['max_points']:g}"]
    for check in task["checks"]:
        if check["status"] not in ("passed", "skipped"):
            lines.append(f"- {check['status']}: {check['check']}\n{check['message']}")
    return "\n".join(lines)


@pytest.mark.parametrize("solution", SOLUTIONS, ids=_name)
def test_solution(solution: Solution, graded: dict[str, dict[str, Any]]) -> None:
    task = graded[_name(solution)]
    if not solution.check:
        assert task["status"] == "passed", _told(task)
        assert task["points"] == task["max_points"] > 0
        return
    failing = [
        check
        for check in task["checks"]
        if solution.check in check["check"] and check["status"] == "failed"
    ]
    assert failing, f"{solution.check!r} does not fail:\n{_told(task)}"
    message = failing[0]["message"]
    assert solution.says in message, _told(task)
    if task["line"]:
        assert f"kernels.cu:{task['line']}" in message, _told(task)


def test_every_task_has_four_wrong_kernels_and_an_unusual_right_one() -> None:
    wrong = Counter(solution.task for solution in SOLUTIONS if solution.check)
    right = Counter(solution.task for solution in SOLUTIONS if not solution.check)
    tasks = {mark_task for file in Path(ROOT, "grader", "checks").glob("test_a*_kernels.py")
             for mark_task in _tasks_of(file)}  # fmt: skip
    assert tasks == set(right)
    for task in tasks:
        assert wrong[task] >= 4, f"{task} has {wrong[task]} wrong kernels"


def _tasks_of(file: Path) -> set[str]:
    import re

    return set(re.findall(r'"(a\d\.\w+)"', file.read_text(encoding="utf-8")))
