"""What submissions are laid over: the kit's own stubs, untouched, wherever a batch is started."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from grader import tasks
from grader.checks.settings import CannotRun
from grader.submission import kit
from tests.submission.repositories import repository
from tests.submission.test_batch_memory import gradebook

ROOT = Path(__file__).resolve().parents[2]


def test_a_commit_without_files_earns_nothing_beside_a_solved_folder(tmp_path: Path) -> None:
    teacher = tmp_path / "teacher"
    shutil.copytree(ROOT / "reference", teacher / "assignments")
    sha = repository(tmp_path / "empty", {"README.md": "nothing"})
    sheet = teacher / "sheet.csv"
    sheet.write_text(f"student,link\nann,{tmp_path / 'empty'}/tree/{sha}\n")
    command = [sys.executable, "-m", "grader", "batch", str(sheet), "a1.neighbour_exchange"]
    command += ["--allow-local", "--unsandboxed", "--no-throughput", "--out", str(tmp_path / "out")]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=teacher, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    row = gradebook(tmp_path / "out")["ann"]
    assert (row["status"], float(row["points"])) == ("graded", 0.0)
    assert float(row["max_points"]) > 0


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kit without reference/, as it is released."""
    shutil.copytree(ROOT / "assignments", tmp_path / "assignments")
    monkeypatch.setattr(kit, "KIT", tmp_path)
    kit.require_untouched()
    return tmp_path


@pytest.mark.parametrize("name", ["a1.broadcast", "a2.reduce_add"])
def test_a_solved_kit_is_refused(copy: Path, name: str) -> None:
    path = tasks.find(name).path
    shutil.copy(ROOT / "reference" / path, copy / "assignments" / path)
    with pytest.raises(CannotRun, match=r"is not as it was handed out"):
        kit.require_untouched()


def test_a_missing_file_is_refused(copy: Path) -> None:
    (copy / "assignments" / tasks.find("a1.broadcast").path).unlink()
    with pytest.raises(CannotRun, match=r"is not as it was handed out"):
        kit.require_untouched()


def test_beside_the_reference_every_file_counts(copy: Path) -> None:
    shutil.copytree(ROOT / "reference", copy / "reference")
    kit.require_untouched()
    given = copy / "assignments" / "a1_collectives" / "given.py"
    given.write_text(given.read_text(encoding="utf-8") + "# changed\n", encoding="utf-8")
    with pytest.raises(CannotRun, match=r"run `make assignments`"):
        kit.require_untouched()
