"""`make setup`, `grade` and `test`, with a Python that only writes down what it is told."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from .conftest import ROOT

# Stands in for python3: `-m venv DIR` makes an environment of scripts like itself. pip, the
# grader and the rest append their arguments to the log; FAIL_AT makes the matching one die.
FAKE_PYTHON = """#!/bin/bash
case "$*" in
  "-c import sys"*) exit "${TOO_OLD:-0}" ;;
  "--version") echo "Python 3.9.1"; exit 0 ;;
esac
echo "$(basename "$0") $*" >> "$LOG"
if [[ -n "${FAIL_AT:-}" && "$*" == *"$FAIL_AT"* ]]; then kill -KILL $$; fi
if [[ "$1 $2" == "-m venv" ]]; then
  mkdir -p "$3/bin"
  for name in python grader ruff mypy; do cp "$0" "$3/bin/$name"; done
fi
if [[ "$(basename "$0")" == grader ]]; then exit "${GRADER_EXIT:-0}"; fi
exit 0
"""


class Kit:
    """A folder with the kit's Makefile and nothing installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("Makefile", "pyproject.toml", "constraints.txt"):
            shutil.copy(ROOT / name, folder / name)
        self.python = folder / "fake" / "python3"
        self.python.parent.mkdir()
        self.python.write_text(FAKE_PYTHON)
        self.python.chmod(0o755)
        self.log = folder / "log"

    def make(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run make; the log holds this run only."""
        self.log.write_text("")
        clean = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
        return subprocess.run(
            ["make", f"PYTHON={self.python}", *arguments],
            cwd=self.folder,
            env={**clean, "LOG": str(self.log), "LC_ALL": "C", **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def calls(self, word: str) -> list[str]:
        """The logged calls that hold a word."""
        return [line for line in self.log.read_text().splitlines() if word in line]


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    """A kit without tests, as students have it."""
    return Kit(tmp_path)


def test_setup_pins_torch_first_and_costs_nothing_the_second_time(kit: Kit) -> None:
    assert kit.make("setup").returncode == 0
    installs = kit.calls("pip install")
    assert len(kit.calls("-m venv")) == 1
    assert "torch==" in installs[0]
    assert all("-c constraints.txt" in line for line in installs)
    kit.make("setup")
    assert kit.log.read_text() == ""


def test_changed_constraints_are_installed_into_the_same_environment(kit: Kit) -> None:
    kit.make("setup")
    os.utime(kit.folder / "constraints.txt", (2e9, 2e9))
    kit.make("setup")
    assert kit.calls("pip install")
    assert not kit.calls("-m venv")


@pytest.mark.parametrize("step", ["-m venv", "torch==", "-e ."])
def test_killed_setup_is_repaired_by_the_next_call(kit: Kit, step: str) -> None:
    assert kit.make("setup", FAIL_AT=step).returncode != 0
    (kit.folder / ".venv" / "half_written").touch()
    assert kit.make("grade").returncode == 0
    assert len(kit.calls("-m venv")) == 1
    assert kit.calls("grader check")
    assert not (kit.folder / ".venv" / "half_written").exists()
    kit.make("setup")
    assert kit.log.read_text() == ""


def test_killed_update_is_repaired_by_the_next_call(kit: Kit) -> None:
    kit.make("setup")
    os.utime(kit.folder / "constraints.txt", (2e9, 2e9))
    assert kit.make("setup", FAIL_AT="torch==").returncode != 0
    assert kit.make("setup").returncode == 0
    assert len(kit.calls("-m venv")) == 1


def test_old_python_is_a_clear_error(kit: Kit) -> None:
    run = kit.make("grade", TOO_OLD="1")
    assert run.returncode != 0
    assert "needs Python 3.11 or newer" in run.stderr
    assert "Python 3.9.1" in run.stderr
    assert "make grade PYTHON=" in run.stderr
    assert not (kit.folder / ".venv").exists()


@pytest.mark.parametrize(("exit_status", "succeeds"), [("0", True), ("1", True), ("2", False)])
def test_grade_succeeds_when_the_grader_ran(kit: Kit, exit_status: str, succeeds: bool) -> None:
    run = kit.make("grade", "SOLUTION=reference", "WHAT=a1", GRADER_EXIT=exit_status)
    assert kit.calls("grader") == ["grader check a1 --solution reference"]
    assert (run.returncode == 0) == succeeds


def test_test_runs_the_kits_tests_where_there_are_some(kit: Kit) -> None:
    (kit.folder / "tests").mkdir()
    assert kit.make("test").returncode == 0
    assert kit.calls("[test]")
    assert kit.calls("-m pytest tests")
    assert kit.calls("mypy")
    assert kit.calls("ruff check")


def test_test_grades_and_may_fail_in_a_students_repository(kit: Kit) -> None:
    assert kit.make("test", GRADER_EXIT="1").returncode != 0
    assert kit.calls("grader check")
    assert not kit.calls("pytest")
