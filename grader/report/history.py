"""The memory of the last results, for `grader status`: `.tinyparallel/last.json` in the project.

A convenience for the student, not a record of grades: anyone can edit it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from grader import tasks
from grader.checks.results import Results, TaskResult
from grader.report import memory

FILE = "last.json"
FORMAT = 1


def load(project: Path, solution: str) -> dict[str, dict[str, Any]]:
    """The last result of each task of `solution`, by task id; empty when there is none."""
    solutions = memory.read(project, FILE).get("solutions", {})
    entries = solutions.get(solution, {}) if isinstance(solutions, dict) else {}
    return {
        key: entry
        for key, entry in (entries if isinstance(entries, dict) else {}).items()
        if isinstance(entry, dict) and isinstance(entry.get("status"), str)
    }


def file_digest(folder: Path, task: tasks.Task) -> str:
    """Names the contents of the task's file, to see whether it has changed since."""
    try:
        return hashlib.sha256((folder / task.path).read_bytes()).hexdigest()
    except OSError:
        return ""


class History:
    """An observer that remembers each task's result as it ends; results of other tasks stay.

    problem: why nothing could be remembered, say in a read-only checkout; the run goes on.
    """

    def __init__(self, project: Path, folder: Path) -> None:
        self._project = project
        self._folder = folder
        self.problem: OSError | None = None

    def began(self, results: Results) -> None:
        """Nothing to remember yet."""

    def task_began(self, task: str) -> None:
        """Nothing to remember yet."""

    def task_ended(self, result: TaskResult, results: Results) -> None:
        """Remember the task, unless `-k` or the like left out some of its checks."""
        task = tasks.find(result.task)
        if abs(result.max_points + result.skipped_points - task.points) > 1e-6:
            return
        entry = {key: value for key, value in result.to_json().items() if key != "checks"}
        entry["file"] = file_digest(self._folder, task)
        try:
            self._remember(results.solution, result.task, entry)
        except OSError as error:
            self.problem = error

    def _remember(self, solution: str, task_id: str, entry: dict[str, Any]) -> None:
        document = memory.read(self._project, FILE)
        if document.get("format") != FORMAT or not isinstance(document.get("solutions"), dict):
            document = {"format": FORMAT, "solutions": {}}
        document["solutions"].setdefault(solution, {})[task_id] = entry
        memory.write(self._project, FILE, document)
