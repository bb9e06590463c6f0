"""Runs the checks of some tasks in this process, through pytest."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import grader.checks
from grader import tasks
from grader.checks.plugin import Attachment
from grader.checks.results import Observer, Results
from grader.checks.settings import CannotRun, project_folder


def run_checks(
    selected: Sequence[tasks.Task],
    options: Sequence[str],
    pytest_options: Sequence[str] = (),
    observers: Sequence[Observer] = (),
    *,
    silent: bool = True,
) -> Results:
    """Run the checks of the selected tasks and return what became of them.

    options: the plugin's own options ("--solution=reference", …); pytest_options: the user's.
    observers: told as tasks begin and end. silent: pytest itself prints nothing.
    Raises `CannotRun` when pytest refuses an option or when nothing ran.
    """
    ini = Path(grader.checks.__file__).with_name("pytest.ini")
    arguments = [
        "-p",
        "grader.checks.plugin",
        "-c",
        str(ini),
        f"--rootdir={project_folder()}",
        "--continue-on-collection-errors",
        *options,
        *(f"--task={task.id}" for task in selected),
        *pytest_options,
        *_check_files(selected),
    ]
    attachment = Attachment(observers, silent)
    # pytest prints what it refuses on stderr, in several lines: keep it to say it in one.
    stderr = io.StringIO()
    with contextlib.redirect_stderr(stderr if silent else sys.stderr):
        try:
            code = pytest.main(arguments, plugins=[attachment, _Settled()])
        finally:
            gc.unfreeze()
    recorder = attachment.recorder
    refused = code == pytest.ExitCode.USAGE_ERROR
    if refused or recorder is None or code == pytest.ExitCode.INTERNAL_ERROR:
        raise CannotRun(_refusal(stderr.getvalue()) or f"pytest ended with code {int(code)}")
    sys.stderr.write(stderr.getvalue())
    if not recorder.results.tasks:
        raise CannotRun("no check was selected: nothing was graded")
    recorder.results.interrupted = code == pytest.ExitCode.INTERRUPTED
    return recorder.results


class _Settled:
    """What is there before the first check (torch, the checks) will be no garbage.

    Looking through it takes a tenth of a second, and pytest does so ten times as it ends.
    """

    def pytest_collection_finish(self) -> None:
        gc.freeze()


def _check_files(selected: Sequence[tasks.Task]) -> list[str]:
    """The files of the selected tasks' checks; `CannotRun` when one is missing from the kit."""
    files = []
    for assignment in tasks.ASSIGNMENTS:
        chosen = [task for task in selected if task.assignment == assignment.name]
        for module in dict.fromkeys(assignment.checks_of(task) for task in chosen):
            spec = importlib.util.find_spec(module)
            if spec is None or spec.origin is None:
                raise CannotRun(f"the kit has no checks of {assignment.name}: reinstall it")
            files.append(os.path.abspath(spec.origin))
    return files


def _refusal(text: str) -> str:
    """The telling line of pytest's complaint: the one that follows its usage text, if any."""
    lines = [line.removeprefix("ERROR:").strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("inifile:", "rootdir:"))]
    telling = [line for line in lines if "error:" in line]
    line = telling[0] if telling else (lines[-1] if lines else "")
    return line.split("error:", 1)[-1].strip()
