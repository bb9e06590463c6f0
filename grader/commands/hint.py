"""`grader hint TASK`: one hint at a time, the next one at each call; never the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from grader import tasks
from grader.checks.settings import CannotRun, project_folder
from grader.commands.options import Language
from grader.hints import hints_of
from grader.report import memory
from grader.report.language import language_of, text
from grader.report.wrap import wrap

FILE = "hints.json"


def hint(
    task: Annotated[str, typer.Argument(help="a1.broadcast")],
    again: Annotated[bool, typer.Option("--again", help="those that you have seen")] = False,
    reset: Annotated[bool, typer.Option("--reset", help="begin with the first one")] = False,
    lang: Language = None,
) -> int:
    """Print the next hint for a task, up to three.

    They do not cost points.
    """
    language = language_of(lang)
    if (name := task.strip().rstrip("/")) in {
        n for a in tasks.ASSIGNMENTS for n in (a.key, a.name)
    }:
        example = tasks.select([name])[0].id
        raise CannotRun(f"hint wants a task, for example {example}")
    found = tasks.find(task)
    hints = hints_of(found.id, language)
    project = project_folder()
    seen = 0 if reset else _seen(project, found.id, len(hints))
    console = Console()
    if again and seen == 0:
        console.print(text(language, "no_hint_yet", task=found.id), markup=False)
        return 0
    first, last = (0, seen) if again or seen == len(hints) else (seen, seen + 1)
    for number in range(first, last):
        head = text(language, "hint_of", number=number + 1, count=len(hints), task=found.id)
        console.print(Text(head, style="bold"))
        console.print(Padding(wrap(Text(hints[number]), console.width - 2), (0, 0, 1, 2)))
    if not again and last > seen:
        try:
            _remember(project, found.id, last)
        except OSError as error:
            console.print(text(language, "note", message=error), markup=False)
    key = "more_hints" if last < len(hints) else "no_more_hints"
    handout = f"assignments/{found.assignment}/README.{'zh-CN.md' if language == 'zh' else 'md'}"
    last_line = Text(text(language, key, task=found.id, handout=handout), style="dim")
    console.print(wrap(last_line, console.width))
    return 0


def _seen(project: Path, task: str, count: int) -> int:
    number = memory.read(project, FILE).get(task, 0)
    return min(max(number, 0), count) if isinstance(number, int) else 0


def _remember(project: Path, task: str, number: int) -> None:
    memory.write(project, FILE, memory.read(project, FILE) | {task: number})
