"""Files that a run leaves: its JSON, and a page in Markdown."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from grader.checks.results import Results, TaskResult
from grader.report.language import text, translated


def write_atomically(path: Path, content: str) -> None:
    """Put `content` at `path` in one step: a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, since a rename across file systems is a copy.
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(content)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def check_writable(path: Path) -> None:
    """Raise `OSError` when a file at `path` could not be written, before any time is spent."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=path.parent):
        pass


def dump(document: dict[str, Any]) -> str:
    """JSON as our files hold it."""
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


class JsonWriter:
    """An observer that keeps the JSON up to date after each task, so that a killed run has it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def began(self, results: Results) -> None:
        """Write the results of a run of which nothing has run."""
        self.write(results)

    def task_began(self, task: str) -> None:
        """Nothing to write."""

    def task_ended(self, result: TaskResult, results: Results) -> None:
        """Write what there is."""
        self.write(results)

    def write(self, results: Results) -> None:
        """Replace the file."""
        write_atomically(self.path, dump(results.to_json()))


def write_report(folder: Path, results: Results, language: str) -> Path:
    """Write `results.json` and `report.md` into `folder`; returns the path of the page."""
    write_atomically(folder / "results.json", dump(results.to_json()))
    page = folder / "report.md"
    write_atomically(page, markdown(results, language))
    return page


def markdown(results: Results, language: str) -> str:
    """The run as a page: the table of tasks, then every check that did not pass."""
    from grader.report.terminal import rounded, total_lines

    heads = [text(language, key) for key in ("task", "status", "points")]
    lines = [f"# TinyParallel: {results.solution}", "", *total_lines(results, language), ""]
    lines += [f"| {' | '.join(heads)} |", "|---|---|---|"]
    for task in results.tasks:
        points = f"{rounded(task.points, task.max_points)} / {rounded(task.max_points)}"
        lines.append(f"| `{task.task}` | {text(language, task.status)} | {points} |")
    for task in results.tasks:
        for check in task.checks:
            if check.status == "passed" or task.status == "unimplemented":
                continue
            name = translated(language, check.check)
            lines += ["", f"## {task.task}: {name}", "", text(language, check.status), ""]
            # Four spaces make it a code block whatever the message holds.
            lines += [f"    {line}" for line in translated(language, check.message).splitlines()]
            if check.cause:
                lines += [
                    "",
                    f"{text(language, 'likely_cause')}: {translated(language, check.cause)}",
                ]
        for warning in task.warnings:
            lines += ["", f"## {task.task}: {text(language, 'warning')}", ""]
            lines += [f"    {line}" for line in translated(language, warning).splitlines()]
    return "\n".join(lines) + "\n"
