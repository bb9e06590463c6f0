"""What a student's repository brings for GitHub, containers and editors."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from grader.release import write_release

from .answers import ROOT

WORKFLOW = ".github/workflows/grade.yml"


@pytest.fixture(scope="module")
def student(tmp_path_factory: pytest.TempPathFactory) -> Path:
    dest = tmp_path_factory.mktemp("release") / "student"
    write_release(ROOT, dest)
    return dest


def test_a_push_is_graded_and_the_report_kept(student: Path) -> None:
    text = (student / WORKFLOW).read_text(encoding="utf-8")
    assert "\t" not in text and re.search(r"^on:\n  push:", text, re.MULTILINE)
    for needed in ("make setup", "make grade", "--no-throughput", "--report report",
                   "actions/upload-artifact@", "path: report", "permissions:\n  contents: read",
                   "timeout-minutes:"):  # fmt: skip
        assert needed in text, needed
    # What someone types into the workflow's form must not become shell code.
    for line in text.splitlines():
        if "run:" in line:
            assert "${{" not in line, line


def test_the_workflows_command_is_what_make_runs(student: Path) -> None:
    arguments = ["WHAT=a2", "ARGS=--no-throughput --report report", "JSON=report/all.json"]
    run = subprocess.run(
        ["make", "-n", "grade", "STAMP=", *arguments],
        cwd=student, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "check a2 " in run.stdout
    assert "--no-throughput --report report" in run.stdout and "report/all.json" in run.stdout


def test_container_files_are_there_and_use_the_kits_own_commands(student: Path) -> None:
    container = json.loads((student / ".devcontainer/devcontainer.json").read_text())
    assert container["build"]["dockerfile"] == "../Dockerfile"
    assert "make setup" in container["postCreateCommand"]
    arguments = container["customizations"]["vscode"]["settings"]["python.testing.pytestArgs"]
    assert arguments[0] == "grader/checks" and (student / arguments[0]).is_dir()
    dockerfile = (student / "Dockerfile").read_text()
    assert "RUN make setup" in dockerfile and "g++" in dockerfile
    ignored = (student / ".dockerignore").read_text().split()
    assert {".git", ".venv"} <= set(ignored)


def test_the_release_can_be_installed_with_its_data(student: Path) -> None:
    text = (student / "pyproject.toml").read_text()
    for pattern in ("*.html", "*.toml", "locale/*/LC_MESSAGES/*.po"):
        assert pattern in text
    for name in ("grader/hints/a2.toml", "grader/report/run_page.html", "notebooks/a2.ipynb",
                 "grader/locale/zh_CN/LC_MESSAGES/tinyparallel.po"):  # fmt: skip
        assert (student / name).is_file(), name


def test_pytest_runs_the_checks_as_an_editor_does(student: Path) -> None:
    """In a student's repository, whose stubs are empty: collected, run, and shown as tasks."""
    command = [sys.executable, "-m", "pytest", "grader/checks", "--no-throughput", "-q"]
    run = subprocess.run(
        [*command, "-k", "a2 and ring_all_gather or pcie"],
        cwd=student, capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": str(student)},
    )  # fmt: skip
    assert run.returncode in (0, 1), run.stdout[-3000:] + run.stderr[-2000:]
    assert re.search(r"a0\.pcie_bandwidth +unimplemented", run.stdout), run.stdout[-3000:]
    assert "deselected" in run.stdout
