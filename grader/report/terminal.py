"""The terminal: a line per task as it ends, failures explained, and the table at the end."""

from __future__ import annotations

import math

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from grader.checks.results import CheckResult, Results, TaskResult
from grader.report.language import text, translated
from grader.report.wrap import wrap

STYLES = {
    "passed": "green",
    "partial": "yellow",
    "failed": "red",
    "unimplemented": "dim",
    "error": "red",
    "timeout": "magenta",
    "skipped": "cyan",
    "not_run": "dim",
}
MARKS = {
    "passed": "✓",
    "partial": "◐",
    "failed": "✗",
    "unimplemented": "·",
    "error": "!",
    "timeout": "⧖",
    "skipped": "-",
}
_BAR = 10
_WARNINGS = 3  # a task shows so many; its page has them all


class Progress:
    """An observer that prints as the run goes."""

    def __init__(self, console: Console, language: str) -> None:
        self._console = console
        self._language = language

    def began(self, results: Results) -> None:
        """Say what is graded."""
        line = text(
            self._language,
            "graded",
            solution=results.solution,
            device=results.device,
            seed=results.seed,
        )
        self._console.print(line, markup=False, highlight=False)

    def task_began(self, task: str) -> None:
        """On a terminal: the task's name, until its line replaces it."""
        if self._console.is_terminal:
            running = text(self._language, "running")
            self._console.print(Text(f"  {task} … {running}", style="dim"), end="")

    def task_ended(self, result: TaskResult, results: Results) -> None:
        """The task's line, and what went wrong."""
        if self._console.is_terminal:
            self._console.file.write("\r\033[2K")
        style = STYLES[result.status]
        line = Text.assemble(
            (f"{MARKS[result.status]} ", style),
            f"{result.task:34} ",
            (text(self._language, result.status), style),
            f"  {_points(result)}",
        )
        self._console.print(line, soft_wrap=True)
        if result.status == "unimplemented":
            self._missing(result)
            return
        self._failures(result)
        for warning in result.warnings[:_WARNINGS]:
            label = text(self._language, "warning") + text(self._language, "colon")
            self._console.print(Text.assemble("    ", (label, "yellow")), end="", soft_wrap=True)
            first_line, _, rest = translated(self._language, warning).partition("\n")
            self._console.print(Text(first_line), soft_wrap=True)
            if rest:
                self._print_indented(Text(rest))
        if len(result.warnings) > _WARNINGS:
            more = text(self._language, "more_warnings", count=len(result.warnings) - _WARNINGS)
            self._console.print(Text(f"    {more}", style="dim"), soft_wrap=True)

    def _missing(self, result: TaskResult) -> None:
        """What is missing, where it is not the task's own stub: another task that it calls."""
        own = f"{result.task} is not implemented yet"
        for check in result.checks:
            if check.status == "unimplemented" and check.message not in ("", own):
                self._print_indented(Text(translated(self._language, check.message)))
                return

    def _failures(self, result: TaskResult) -> None:
        told: dict[str, str] = {}
        for check in result.checks:
            if check.status != "passed":
                first = told.setdefault(check.message, check.check)
                self._explain(check, first if first != check.check else None)

    def _explain(self, check: CheckResult, told_at: str | None) -> None:
        language = self._language
        worth = text(language, "worth", points=rounded(check.max_points))
        status = (text(language, check.status), STYLES[check.status])
        name = translated(language, check.check)
        bracket = text(language, "brackets", words=worth)
        head = Text.assemble("    ", status, f"{text(language, 'colon')}{name}{bracket}")
        self._console.print(head, soft_wrap=True)
        if told_at is not None:
            words = text(language, "as_above", check=translated(language, told_at))
            self._print_indented(Text(words, style="dim"))
            return
        if check.message:
            self._print_indented(Text(translated(language, check.message)))
        if check.cause:
            likely = text(language, "likely_cause") + text(language, "colon")
            self._print_indented(Text.assemble((likely, "bold"), translated(language, check.cause)))

    def _print_indented(self, words: Text) -> None:
        if self._console.is_terminal:
            self._console.print(Padding(wrap(words, self._console.width - 6), (0, 0, 0, 6)))
            return
        # In a file or a pipe every line stays whole, however long.
        for line in words.split("\n"):
            self._console.print(Text("      ").append_text(line), soft_wrap=True)


class LiveProgress(Progress):
    """Explains each failure as soon as it is known, above the task's line. Skipped checks are left
    out: they were not asked for."""

    def __init__(self, console: Console, language: str) -> None:
        super().__init__(console, language)
        self._told: dict[str, str] = {}

    def began(self, results: Results) -> None:
        """Nothing to say: who watches knows what."""

    def task_began(self, task: str) -> None:
        """Another task, other failures."""
        self._told = {}
        super().task_began(task)

    def check_ended(self, task: str, check: CheckResult) -> None:
        """Explain a check that did not pass."""
        if check.status in ("passed", "skipped", "unimplemented"):
            return
        if self._console.is_terminal:
            self._console.file.write("\r\033[2K")
        first = self._told.setdefault(check.message, check.check)
        self._explain(check, first if first != check.check else None)

    def _failures(self, result: TaskResult) -> None:
        """They have been told."""


def print_table(console: Console, results: Results, language: str) -> None:
    """Per assignment its tasks with status, points and a bar; then the total."""
    assignments = dict.fromkeys(task.assignment for task in results.tasks)
    for assignment in assignments:
        table = Table(title=assignment, title_justify="left", title_style="bold", box=None)
        table.add_column(text(language, "task"), no_wrap=True, min_width=32)
        table.add_column(text(language, "status"), no_wrap=True, min_width=15)
        table.add_column(text(language, "points"), justify="right", no_wrap=True)
        table.add_column(text(language, "progress"), no_wrap=True)
        for task in results.tasks:
            if task.assignment == assignment:
                words = Text(text(language, task.status), style=STYLES[task.status])
                table.add_row(task.task, words, _points(task), bar(task.points, task.max_points))
        console.print()
        console.print(table)
    console.print()
    for line in total_lines(results, language):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def total_lines(results: Results, language: str) -> list[str]:
    """Points, percent of what could be earned here, skipped points, time."""
    lines = []
    if results.max_points > 0:
        total = text(
            language,
            "total",
            points=rounded(results.points, results.max_points),
            max_points=rounded(results.max_points),
            percent=percent(results.points, results.max_points),
        )
    else:
        total = text(language, "nothing")
    seconds = text(language, "seconds", seconds=f"{results.seconds:.1f}")
    lines.append(f"{total}, {seconds}" if language == "en" else f"{total}，{seconds}")
    skipped = [task for task in results.tasks if task.skipped_points > 0]
    if skipped:
        names = ", ".join(f"{task.task} {rounded(task.skipped_points)}" for task in skipped)
        points = rounded(results.skipped_points)
        lines.append(text(language, "skipped_points", points=points, tasks=names))
    if results.interrupted:
        lines.append(text(language, "interrupted"))
    return lines


def bar(points: float, max_points: float, width: int = _BAR) -> str:
    """A bar of fixed width; full only when every point was earned."""
    filled = int(width * points / max_points) if max_points > 0 else 0
    return "█" * filled + "░" * (width - filled)


def percent(points: float, max_points: float) -> str:
    """Percent with one decimal, rounded down: 100 is only said of full marks."""
    tenths = int(1000 * points / max_points + 1e-9)
    return f"{tenths / 10:g}"


def rounded(points: float, most: float | None = None) -> str:
    """Points with one decimal; less than `most` never looks like it."""
    words = f"{round(points, 1):g}"
    if most is not None and points < most and words == f"{round(most, 1):g}":
        return f"{math.floor(10 * points) / 10:g}"
    return words


def _points(task: TaskResult) -> str:
    if task.status == "skipped":
        return f"({rounded(task.skipped_points)})"
    return f"{rounded(task.points, task.max_points)}/{rounded(task.max_points)}"
