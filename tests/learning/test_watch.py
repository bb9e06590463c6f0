"""`grader check --watch`: what an edit touches, and the loop itself as a student runs it."""

from __future__ import annotations

import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader import tasks
from grader.commands.watch import Watched, syntax_error

from .answers import ROOT

A0 = [task for task in tasks.TASKS if task.assignment == "a0_interconnect"]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(
        ROOT / "reference" / "a0_interconnect", folder / "a0_interconnect", ignore=ignore
    )
    (folder / "__init__.py").write_text("")
    return folder


def test_an_edit_touches_the_tasks_of_its_file(work: Path) -> None:
    watched = Watched(work, A0)
    assert watched.changed() == []
    file = work / "a0_interconnect" / "links.py"
    file.write_text(file.read_text() + "# edited\n")
    assert watched.changed() == ["a0_interconnect/links.py"]
    assert watched.changed() == []
    touched = [task.id for task in watched.touched(["a0_interconnect/links.py"])]
    assert touched == [
        "a0.pcie_bandwidth",
        "a0.nvlink_bandwidth",
        "a0.path_time",
        "a0.message_time",
    ]
    only = Watched(work, A0[:1])
    assert [task.id for task in only.touched(["a0_interconnect/links.py"])] == [A0[0].id]
    assert only.touched(["a0_interconnect/network.py"]) == []


def test_a_given_module_touches_its_assignment(work: Path) -> None:
    watched = Watched(work, A0)
    (work / "a0_interconnect" / "given.py").unlink()
    (work / "a0_interconnect" / "helper.py").write_text("x = 1\n")
    changed = watched.changed()
    assert changed == ["a0_interconnect/given.py", "a0_interconnect/helper.py"]
    assert watched.touched(changed) == A0


def test_a_file_that_was_only_touched_has_not_changed(work: Path) -> None:
    watched = Watched(work, A0)
    os.utime(work / "a0_interconnect" / "links.py", (1, 1))
    assert watched.changed() == []


def test_an_edit_of_the_same_length_and_time_of_day_is_seen(work: Path) -> None:
    file = work / "a0_interconnect" / "links.py"
    watched = Watched(work, A0)
    file.write_text(file.read_text().replace("8 / 10", "8 / 11"))
    assert watched.changed() == ["a0_interconnect/links.py"]


def test_a_syntax_error_is_shown_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "ring.py"
    file.write_text("def f():\n    return (1 +\n\nx = 2\n")
    told = syntax_error(file)
    assert told is not None and told.startswith("ring.py:2: ") and told.splitlines()[-1][-1] == "^"
    file.write_text("return 1\n")
    assert "outside function" in str(syntax_error(file))
    file.write_text("x = 1\n")
    assert syntax_error(file) is None
    assert syntax_error(tmp_path / "kernels.cu") is None


class Grader:
    """A running `grader check --watch`, and the lines it has printed."""

    def __init__(self, *arguments: str, cwd: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "grader", "check", "--watch", *arguments],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "COLUMNS": "120"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # A job in the background of a shell is started with Ctrl-C ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip())
        self._lines.put(None)

    def until(self, words: str, seconds: float = 150.0) -> list[str]:
        """The lines up to the first with these words."""
        seen: list[str] = []
        deadline = time.monotonic() + seconds
        while True:
            line = self._lines.get(timeout=max(0.1, deadline - time.monotonic()))
            assert line is not None, f"ended before {words!r}:\n" + "\n".join(seen)
            seen.append(line)
            if words in line:
                return seen


@pytest.fixture
def grader(work: Path, tmp_path: Path) -> Iterator[Grader]:
    (tmp_path / "assignments").mkdir()
    what = ["a0.pcie_bandwidth", "a0.nvlink_bandwidth"]
    running = Grader(*what, "--solution", str(work), "--lang", "en", cwd=tmp_path)
    yield running
    running.process.kill()
    running.process.wait()


def test_edits_are_graded_as_they_come_and_ctrl_c_ends_it(grader: Grader, work: Path) -> None:
    first = "\n".join(grader.until("watching"))
    assert "✓ a0.pcie_bandwidth" in first and "✓ a0.nvlink_bandwidth" in first
    file = work / "a0_interconnect" / "links.py"
    right = file.read_text()

    file.write_text(right.replace("lanes * transfers", "2 * lanes * transfers"))
    told = "\n".join(grader.until("from the edit to the verdict"))
    assert "a0_interconnect/links.py changed" in told
    assert "✗ a0.pcie_bandwidth" in told or "◐ a0.pcie_bandwidth" in told
    assert "✓ a0.nvlink_bandwidth" in told

    file.write_text("def pcie_bandwidth(:\n")
    told = "\n".join(grader.until("from the edit to the verdict"))
    assert "syntax error" in told and "links.py:1" in told and "✗" not in told

    file.write_text(right)
    assert "✓ a0.pcie_bandwidth" in "\n".join(grader.until("from the edit to the verdict"))

    grader.process.send_signal(signal.SIGINT)
    assert grader.process.wait(30) == 0


def test_watch_goes_without_files_of_results(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from grader.cli import main

    monkeypatch.chdir(ROOT)
    assert main(["check", "a1", "--watch", "--json", "x.json"]) == 2
    assert "--watch" in capsys.readouterr().err
