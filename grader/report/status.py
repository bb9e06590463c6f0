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
from grader.report.language import text, translated
from grader.report.terminal import STYLES, bar, percent, rounded

_BAR = 30


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
        share = bar(sum(_points(entries.get(t.id)) for t in assignment.tasks), assignment.points)
        colon = text(language, "colon")
        title = f"{assignment.name}{colon}{translated(language, assignment.title)}"
        console.print(Text.assemble(share, "  ", (title, "bold")), soft_wrap=True)
        table = Table(box=None)
        table.add_column(text(language, "task"), no_wrap=True, min_width=32)
        table.add_column(text(language, "points"), justify="right", no_wrap=True)
        table.add_column(text(language, "status"), no_wrap=True)
        for task in assignment.tasks:
            table.add_row(task.id, *_state(task, entries.get(task.id), folder, language))
        console.print(table)
        console.print()
    lines = [_total(entries, solution, language), *_next(entries, folder, language)]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _points(entry: dict[str, Any] | None) -> float:
    return float(entry.get("points", 0)) if entry is not None else 0.0


def _total(entries: Mapping[str, dict[str, Any]], solution: str, language: str) -> str:
    """A bar over everything that this kit grades, and the points."""
    if not any(task.id in entries for task in tasks.TASKS):
        return text(language, "status_none", solution=solution)
    earned = sum(_points(entries.get(task.id)) for task in tasks.TASKS)
    most = sum(task.points for task in tasks.TASKS)
    words = text(
        language,
        "status_total",
        points=rounded(earned, most),
        max_points=rounded(most),
        solution=solution,
    )
    return f"{bar(earned, most, _BAR)} {percent(earned, most)} %  {words}"


def _next(entries: Mapping[str, dict[str, Any]], folder: Path | None, language: str) -> list[str]:
    """What to do now: mend what has lost points, look again at what was edited, begin a task."""
    changed, lost, new = [], [], []
    for task in tasks.TASKS:
        entry = entries.get(task.id)
        if entry is None or entry["status"] == "unimplemented":
            new.append(task)
        elif folder is not None and file_digest(folder, task) != entry.get("file"):
            changed.append(task)
        elif entry["status"] not in ("passed", "skipped"):
            lost.append(task)
    if lost:
        key, task = "next_fix", lost[0]
    elif new:
        key, task = "next_new", new[0]
    elif changed:
        return [text(language, "next_again", task=changed[0].id)]
    else:
        return [text(language, "next_nothing")]
    values = {
        "task": task.id,
        "points": f"{task.points:g}",
        "title": translated(language, task.title),
        "path": f"{folder.name if folder else 'assignments'}/{task.path}",
    }
    return [text(language, key, **values), text(language, "next_hint", task=task.id)]


def _state(
    task: tasks.Task, entry: dict[str, Any] | None, folder: Path | None, language: str
) -> tuple[str, Text]:
    if entry is None or entry["status"] not in STYLES:
        return f"{task.points:g}", Text(text(language, "not_run"), style=STYLES["not_run"])
    words = Text(text(language, entry["status"]), style=STYLES[entry["status"]])
    if folder is not None and file_digest(folder, task) != entry.get("file"):
        words.append(text(language, "brackets", words=text(language, "changed")), style="dim")
    points = rounded(float(entry.get("points", 0)), task.points)
    return f"{points}/{rounded(task.points)}", words
