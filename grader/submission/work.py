"""Grading one submission: a clean kit, the student's files laid over it, an examiner of its own.

Nothing here reads a student's file as anything but bytes. The examiner is a process of its own, in
a folder of its own; the verdict is what that process writes, never what the student's prints.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from grader import tasks
from grader.checks.settings import CannotRun
from grader.harness import processes
from grader.harness.directories import remove_directory
from grader.submission import confinement
from grader.submission.kit import KIT

Part = Literal["correctness", "throughput"]

_LOOK_SECONDS: Final = 0.1
_COUNT_SECONDS: Final = 0.25
_MAX_PROCESSES: Final = 400
_BASE_SECONDS: Final = 120.0
_TASK_SECONDS: Final = 45.0
# fmt: off
_KEPT_ENVIRONMENT: Final = (
    "PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CC", "CXX",
    "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES",
    "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS",  # systemd makes control groups through these
)
# fmt: on


@dataclass(frozen=True)
class Work:
    """What an examiner is told. files: path inside `assignments/` → content.

    tasks: ids. seconds: wall time for all of it. project: whose `assignments/` is the clean kit.
    scratch: a folder for what lasts no longer than the grading; "" is the system's.
    """

    files: Mapping[str, bytes]
    tasks: Sequence[str]
    project: str
    seed: int
    device: str = "auto"
    part: Part = "correctness"
    seconds: float = 600.0
    sandboxed: bool = True
    scratch: str = ""


@dataclass(frozen=True)
class Outcome:
    """What became of it. document: what the examiner wrote, even when it was stopped; or None."""

    status: Literal["graded", "timeout", "error"]
    note: str
    document: dict[str, Any] | None
    seconds: float


def default_seconds(ids: Sequence[str]) -> float:
    """Wall time for so many tasks: each may hang for as long as its checks allow."""
    return _BASE_SECONDS + _TASK_SECONDS * len(ids)


def grade(work: Work, stopped: threading.Event | None = None) -> Outcome:
    """Grade it. Leaves no process and no file. stopped: end it early, when set.

    Raises `CannotRun` when the kit is not there.
    """
    begin = time.monotonic()
    scratch = Path(tempfile.mkdtemp(prefix="tinyparallel-one-", dir=work.scratch or None))
    results = Path(tempfile.mkdtemp(prefix="tinyparallel-results-", dir=work.scratch or None))
    try:
        solution = _lay_out(work, scratch / "kit")
        (scratch / "tmp").mkdir()
        status, words = _examine(work, solution, scratch, results / "results.json", stopped)
        document = _document(results / "results.json", work.tasks, solution)
    finally:
        remove_directory(str(scratch))
        remove_directory(str(results))
    seconds = time.monotonic() - begin
    if document is None:
        last = (words.strip().splitlines() or ["the grader ended without results"])[-1][:300]
        return Outcome("error" if status == "graded" else status, last, None, seconds)
    return Outcome(status, words if status == "timeout" else "", document, seconds)


def _lay_out(work: Work, kit: Path) -> Path:
    """The stubs and given modules of all assignments, with the student's files laid over them."""
    source = Path(work.project) / "assignments"
    if not source.is_dir():
        raise CannotRun(f"batch: {source} is missing: it is what submissions are laid over")
    solution = kit / "assignments"
    shutil.copytree(source, solution, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    known = set(tasks.student_files())
    for path, content in work.files.items():
        if path not in known:
            raise CannotRun(f"batch: {path} is no file that students write")
        place = solution / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return solution


def _examine(
    work: Work, solution: Path, scratch: Path, results: Path, stopped: threading.Event | None
) -> tuple[Literal["graded", "timeout", "error"], str]:
    """(status, last words of the examiner)."""
    command = [sys.executable, "-m", "grader.submission.examine", str(os.getpid()), "check"]
    command += [*work.tasks, "--solution", str(solution), "--json", str(results)]
    # What it says is kept, and told to anybody in his own language.
    command += ["--device", work.device, "--seed", str(work.seed), "--lang", "en"]
    if work.sandboxed:
        command += confinement.options()
    command += ["--no-throughput"] if work.part == "correctness" else ["--", "-k", "throughput"]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            cwd=solution.parent,
            env=_environment(scratch),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )
        reason = ""
        try:
            reason = _wait(process, work.seconds, stopped)
        finally:
            _end(process, work.sandboxed)
        if reason:
            return "timeout", f"stopped: {reason}"
        log.seek(0)
        words = log.read(1 << 16).decode(errors="replace")
    return ("error" if process.returncode not in (0, 1) else "graded"), words


def _wait(process: subprocess.Popen[bytes], seconds: float, stopped: threading.Event | None) -> str:
    """Wait for its end; why it must be stopped, "" when it has ended."""
    deadline = time.monotonic() + seconds
    next_count = 0.0
    while (now := time.monotonic()) < deadline:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_LOOK_SECONDS)
            return ""
        if stopped is not None and stopped.is_set():
            raise KeyboardInterrupt
        if now > next_count:
            # Each call has a limit of its own; this one holds where a bomb is faster than that.
            count = len(processes.tree(process.pid))
            if count > _MAX_PROCESSES:
                return f"{count} processes at once; the limit is {_MAX_PROCESSES}"
            next_count = time.monotonic() + _COUNT_SECONDS
    return f"not graded within {seconds:g} seconds"


def _end(process: subprocess.Popen[bytes], sandboxed: bool) -> None:
    """Kill the examiner and all that it started.

    A sandbox ends with its examiner, by the kernel's hand: nothing in it can fork faster. Only
    where there is none must its processes be stopped one by one.
    """
    near = _near(process.pid) if sandboxed else []
    if not sandboxed:
        processes.kill_tree(process.pid)
    process.kill()
    for pid in near:
        processes.send_signal(pid, signal.SIGKILL)
    process.wait()


def _near(pid: int) -> list[int]:
    """Its children and theirs: servers, and the first processes of their sandboxes."""
    children = processes.children(pid)
    return [*children, *(each for child in children for each in processes.children(child))]


def _environment(scratch: Path) -> dict[str, str]:
    """What the examiner sees: no token or key of whoever runs the batch is among it."""
    from kernels.cache import cache_folder

    kept = {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT_ENVIRONMENT or name.startswith("LC_")
    }
    return kept | {
        "HOME": str(scratch),
        "PYTHONPATH": str(KIT),
        "TINYPARALLEL_CACHE": str(cache_folder()),
        "TMPDIR": str(scratch / "tmp"),
    }


def _document(path: Path, ids: Sequence[str], solution: Path) -> dict[str, Any] | None:
    try:
        # A message names the student's file where he knows it, in every run alike.
        text = path.read_text(encoding="utf-8").replace(str(solution), "assignments")
        document: dict[str, Any] = json.loads(text)
    except (OSError, ValueError):
        return None
    return document if {task["task"] for task in document["tasks"]} <= set(ids) else None


def add_throughput(
    document: dict[str, Any], timed: dict[str, Any] | None, reason: str = ""
) -> dict[str, Any]:
    """The results with the timed checks, which were left out at first, in their places.

    A timed check that did not run, though it could have, earned nothing; reason: why it did not.
    """
    from grader.checks.results import task_status

    ran = {
        (task["task"], check["check"]): check
        for task in (timed or {"tasks": []})["tasks"]
        for check in task["checks"]
    }
    for task in document["tasks"]:
        checks = [
            ran.get((task["task"], check["check"]), check) if left_out(check) else check
            for check in task["checks"]
        ]
        for place, check in enumerate(checks):
            if left_out(check):
                why = reason or "nothing else of this task earned points"
                message = f"not measured: {why}"
                checks[place] = check | {"status": "failed", "points": 0.0, "message": message}
        task["checks"] = checks
        task["status"] = task_status([_result(check) for check in checks])
        _add_up(task, checks)
    _add_up(document, document["tasks"], "seconds")
    return document


def left_out(check: Mapping[str, Any]) -> bool:
    """Whether a check was skipped only because nothing was timed."""
    return check["status"] == "skipped" and "--no-throughput" in check["message"]


def _result(check: Mapping[str, Any]) -> Any:
    from grader.checks.results import CheckResult

    return CheckResult(check["check"], check["max_points"], check["status"], check["points"])


def _add_up(total: dict[str, Any], parts: Sequence[Mapping[str, Any]], *more: str) -> None:
    if "check" in (parts[0] if parts else {}):
        kept = [part for part in parts if part["status"] != "skipped"]
        skipped = sum(part["max_points"] for part in parts if part["status"] == "skipped")
        total["max_points"] = round(sum(part["max_points"] for part in kept), 6)
        total["skipped_points"] = round(skipped, 6)
        total["points"] = round(sum(part["points"] for part in parts), 6)
        return
    for name in ("points", "max_points", "skipped_points", *more):
        total[name] = round(sum(part[name] for part in parts), 6)
