"""`grader status`: quick, and true to the last results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Project


def test_status_imports_neither_torch_nor_pytest(project: Project) -> None:
    run = project.grader("status", extra="--modules")
    assert run.code == 0
    modules = run.out.splitlines()[-1]
    assert "'grader.report.status'" in modules
    assert "'torch'" not in modules
    assert "'pytest'" not in modules


def test_status_knows_the_last_results_and_whether_the_file_has_changed(tmp_path: Path) -> None:
    project = Project(tmp_path / "project")
    assert project.grader("status").out.count("not run yet") == 13
    project.check("f.part", "f.whole", "f.gpu")
    lines = {line.split()[0]: line for line in project.grader("status").out.splitlines() if line}
    assert "partial" in lines["f.part"]
    assert "4/10" in lines["f.part"]
    assert "passed" in lines["f.whole"]
    assert "changed" not in lines["f.whole"]
    assert "not run yet" in lines["f.wrong"]

    (project.folder / "assignments" / "f_fates" / "whole.py").write_text("")
    (project.folder / "assignments" / "f_fates" / "f.py").write_text("x = 2\n")
    # A run of part of a task's checks is no result of the task.
    project.check("f.whole", "--", "-k", "quick")
    # Another solution's results are its own.
    assert project.grader("status", "--solution", "reference").out.count("not run yet") == 13
    out = project.grader("status").out
    whole = next(line for line in out.splitlines() if "f.whole" in line)
    assert "passed (changed since)" in whole


@pytest.mark.parametrize("content", ["", "[]", '{"format": 1, "solutions": []}', "{"])
def test_status_survives_a_damaged_memory(tmp_path: Path, content: str) -> None:
    from grader.report import history

    (tmp_path / ".tinyparallel").mkdir()
    memory = tmp_path / ".tinyparallel" / "last.json"
    memory.write_text(content)
    assert history.load(tmp_path, "assignments") == {}
    memory.write_text(json.dumps({"solutions": {"assignments": {"f.x": {"status": "passed"}}}}))
    assert history.load(tmp_path, "assignments") == {"f.x": {"status": "passed"}}
