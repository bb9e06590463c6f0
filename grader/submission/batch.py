"""`grader batch`: from a sheet of links to a table of points, one submission after the other.

Every submission is graded by a process of its own, which runs the student's code in workers. Its
verdict is read from the file that this process writes, never from what the student prints.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from grader import tasks
from grader.checks.settings import CannotRun, project_folder
from grader.submission.clone import Clone, CloneError
from grader.submission.sheet import BadLink, Entry, Link, latest_valid, read_sheet

Status = Literal["graded", "bad link", "not fetched", "timeout", "error"]
_SECONDS: Final = 1800.0
_KIT: Final = Path(__file__).resolve().parents[2]


@dataclass
class Row:
    """What became of one student's submission. points: by task id, of those that were graded."""

    student: str
    link: str
    status: Status
    note: str = ""
    total: float = 0.0
    max_points: float = 0.0
    points: dict[str, float] = field(default_factory=dict)
    statuses: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BatchOptions:
    """How to grade. seconds: for one submission; the rest is handed to `grader check`.

    allow_local: take paths for links. unsandboxed: the user knows that the students' code can read
    and write what he can.
    """

    device: str = "auto"
    throughput: bool = True
    seconds: float = _SECONDS
    allow_local: bool = False
    unsandboxed: bool = False


def run_batch(
    sheet: Path,
    whats: Sequence[str],
    out: Path,
    options: BatchOptions,
    say: Callable[[str], None] = print,
) -> list[Row]:
    """Grade every student's latest valid link; writes `gradebook.csv` in `out` after each.

    Raises `CannotRun`, `BadSheet`, `tasks.UnknownTask`, OSError.
    """
    if not options.unsandboxed:
        raise CannotRun(
            "batch: this version has no sandbox: students' code could read and write what you can; "
            "--unsandboxed grades it all the same"
        )
    selected = tasks.select(whats)
    entries = latest_valid(read_sheet(sheet), allow_local=options.allow_local)
    out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for number, (entry, link) in enumerate(entries.values(), start=1):
        row = _one(entry, link, selected, options)
        rows.append(row)
        write_gradebook(out / "gradebook.csv", rows, selected)
        say(
            f"{number}/{len(entries)} {entry.student}: {row.status}, "
            f"{row.total:g} of {row.max_points:g}{': ' * bool(row.note)}{row.note}"
        )
    return rows


def _one(
    entry: Entry, link: Link | BadLink, selected: Sequence[tasks.Task], options: BatchOptions
) -> Row:
    if isinstance(link, BadLink):
        return Row(entry.student, entry.link, "bad link", str(link))
    with tempfile.TemporaryDirectory(prefix="tinyparallel-batch-") as scratch:
        solution = Path(scratch) / "kit" / "assignments"
        repository = Path(scratch) / "repository"
        repository.mkdir()
        _copy_kit(solution)
        try:
            clone = Clone(link, repository)
            # All files of the table: one assignment may build on another.
            missing = clone.lay_over(solution, dict.fromkeys(task.path for task in tasks.TASKS))
        except CloneError as error:
            return Row(entry.student, entry.link, "not fetched", str(error))
        row = _graded(entry, solution, Path(scratch) / "results.json", selected, options)
        missing = [path for path in missing if path in {task.path for task in selected}]
        if missing and not row.note:
            row.note = f"not in the commit: {', '.join(missing)}"
        return row


def _copy_kit(solution: Path) -> None:
    """The stubs and given modules of all assignments, on which the student's files are laid."""
    source = project_folder() / "assignments"
    if not source.is_dir():
        raise CannotRun(f"batch: {source} is missing: it is what submissions are laid over")
    shutil.copytree(source, solution, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    for task in tasks.TASKS:
        (solution / task.path).parent.mkdir(parents=True, exist_ok=True)


def _graded(
    entry: Entry,
    solution: Path,
    results: Path,
    selected: Sequence[tasks.Task],
    options: BatchOptions,
) -> Row:
    command = [sys.executable, "-m", "grader", "check", *(task.id for task in selected)]
    command += ["--solution", str(solution), "--json", str(results), "--device", options.device]
    command += [] if options.throughput else ["--no-throughput"]
    row = Row(entry.student, entry.link, "graded")
    # Its own folder, so that no submission leaves its name in the history of another.
    with subprocess.Popen(
        command,
        cwd=solution.parent,
        env=os.environ | {"PYTHONPATH": str(_KIT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            words = process.communicate(timeout=options.seconds)[1].decode(errors="replace")
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            row.status, words = "timeout", f"not graded within {options.seconds:g} seconds"
    try:
        document = json.loads(results.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        if row.status == "graded":
            row.status = "error"
        row.note = (words.strip().splitlines() or ["the grader ended without results"])[-1][:300]
        return row
    _read(row, document)
    if row.status == "timeout":
        row.note = words
    return row


def _read(row: Row, document: dict[str, Any]) -> None:
    row.total, row.max_points = document["points"], document["max_points"]
    for task in document["tasks"]:
        row.points[task["task"]] = task["points"]
        row.statuses[task["task"]] = task["status"]


def write_gradebook(path: Path, rows: Sequence[Row], selected: Sequence[tasks.Task]) -> None:
    """A CSV file, in one step: student, link, status, totals, points and status by task, note."""
    text = io.StringIO()
    writer = csv.writer(text)
    ids = [task.id for task in selected]
    head = ["student", "link", "status", "points", "max_points", *ids]
    writer.writerow([*head, *(f"{task} status" for task in ids), "note"])
    for row in rows:
        points = ["" if task not in row.points else f"{row.points[task]:g}" for task in ids]
        statuses = [row.statuses.get(task, "") for task in ids]
        cells = [row.student, row.link, row.status, f"{row.total:g}", f"{row.max_points:g}"]
        writer.writerow([_harmless(cell) for cell in [*cells, *points, *statuses, row.note]])
    part = path.with_name(f".{path.name}.part")
    part.write_text("\ufeff" + text.getvalue(), encoding="utf-8", newline="")
    part.replace(path)


def _harmless(cell: str) -> str:
    """What a student wrote must not become a formula in the teacher's spreadsheet."""
    return f"'{cell}" if cell[:1] in ("=", "+", "-", "@") else cell
