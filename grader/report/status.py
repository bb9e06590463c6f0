"""`grader status`: all tasks, their points and what the last results say of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from grader import tasks
from grader.report.history import file_digest
from grader.report.language import text
from grader.report.terminal import STYLES


def print_status(
    console: Console,
    entries: Mapping[str, dict[str, Any]],
    solution: str,
    folder: Path | None,
    language: str,
) -> None:
    """Print the table of tasks. entries: last result by task id; folder: where the solution lies,
    to say which results are older than the file."""
    for assignment in tasks.ASSIGNMENTS:
        title = f"{assignment.name}: {assignment.title}"
        table = Table(title=title, title_justify="left", title_style="bold", box=None)
        table.add_column(text(language, "task"), no_wrap=True, min_width=32)
        table.add_column(text(language, "points"), justify="right", no_wrap=True)
        table.add_column(text(language, "status"), no_wrap=True)
        for task in assignment.tasks:
            table.add_row(task.id, *_state(task, entries.get(task.id), folder, language))
        console.print(table)
        console.print()
    known = [entries[task.id] for task in tasks.TASKS if task.id in entries]
    if known:
        earned = sum(float(entry.get("points", 0)) for entry in known)
        most = sum(task.points for task in tasks.TASKS)
        line = text(
            language,
            "status_total",
            points=f"{earned:g}",
            max_points=f"{most:g}",
            solution=solution,
        )
        console.print(line, markup=False, highlight=False)


def _state(
    task: tasks.Task, entry: dict[str, Any] | None, folder: Path | None, language: str
) -> tuple[str, Text]:
    if entry is None or entry["status"] not in STYLES:
        return f"{task.points:g}", Text(text(language, "not_run"), style=STYLES["not_run"])
    words = Text(text(language, entry["status"]), style=STYLES[entry["status"]])
    if folder is not None and file_digest(folder, task) != entry.get("file"):
        words.append(f" ({text(language, 'changed')})", style="dim")
    return f"{float(entry.get('points', 0)):g}/{task.points:g}", words
