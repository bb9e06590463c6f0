"""`grader check --watch`: grades again what an edit touched, within about two seconds.

The worker server and this process, with torch, pytest and the checks, stay warm between runs; the
student's code is read afresh by the workers of every run.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from grader import tasks
from grader.checks.results import Results
from grader.checks.settings import CannotRun
from grader.report.language import text, translated

POLL_SECONDS = 0.1
#: Collects garbage several times at the end of every run of pytest.
QUICKER = ("-p", "no:unraisableexception")
SUFFIXES = (".py", ".cu")

Run = Callable[[Sequence[tasks.Task]], Results]
Stamp = tuple[int, int, str]  # mtime in ns, bytes, digest


class Watched:
    """The files of a solution that selected tasks depend on, and what they held last."""

    def __init__(self, folder: Path, selected: Sequence[tasks.Task]) -> None:
        self._folder = folder
        self._selected = selected
        self._names = sorted({task.assignment for task in selected})
        self._stamps = self._look({})

    @property
    def count(self) -> int:
        """How many files are watched."""
        return len(self._stamps)

    def changed(self) -> list[str]:
        """Files, relative to the solution, whose contents differ from the last call's."""
        before, now = self._stamps, self._look(self._stamps)
        self._stamps = now
        names = before.keys() | now.keys()
        return sorted(n for n in names if _digest(before.get(n)) != _digest(now.get(n)))

    def touched(self, files: Iterable[str]) -> list[tasks.Task]:
        """The selected tasks of these files; a file without tasks touches its whole assignment."""
        files = set(files)
        own = {task.path for task in tasks.TASKS}
        given = {name.partition("/")[0] for name in files - own}
        return [t for t in self._selected if t.path in files or t.assignment in given]

    def _look(self, before: Mapping[str, Stamp]) -> dict[str, Stamp]:
        stamps: dict[str, Stamp] = {}
        for name in self._names:
            for path in sorted((self._folder / name).rglob("*")):
                relative = path.relative_to(self._folder).as_posix()
                if path.suffix not in SUFFIXES or "/." in relative or "__pycache__" in relative:
                    continue
                try:
                    status = path.stat()
                    old = before.get(relative)
                    if old is not None and old[:2] == (status.st_mtime_ns, status.st_size):
                        stamps[relative] = old
                        continue
                    digest = hashlib.sha256(path.read_bytes()).hexdigest()
                except OSError:
                    continue  # an editor is just replacing it
                stamps[relative] = (status.st_mtime_ns, status.st_size, digest)
        return stamps


def _digest(stamp: Stamp | None) -> str:
    return "" if stamp is None else stamp[2]


def syntax_error(path: Path) -> str | None:
    """What is wrong with a Python file, with the line and a caret under it; None if nothing."""
    if path.suffix != ".py" or not path.exists():
        return None
    try:
        # Not `ast.parse`: a `return` outside a function is found by the compiler only.
        compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        lines = [f"{path.name}:{error.lineno or 1}: {error.msg}"]
        if error.text is not None:
            shown = error.text.rstrip("\n")
            lines.append(f"    {shown.strip()}")
            indent = len(shown) - len(shown.lstrip())
            lines.append(" " * (4 + max((error.offset or 1) - 1 - indent, 0)) + "^")
        return "\n".join(lines)
    except ValueError as error:  # null bytes
        return f"{path.name}: {error}"
    return None


@dataclass
class Watch:
    """The loop. run: grades tasks and prints; tell: called with files and seconds at a verdict."""

    console: Console
    folder: Path
    selected: Sequence[tasks.Task]
    language: str
    run: Run
    tell: Callable[[Sequence[str], float], None] | None = None

    def forever(self, first: Sequence[tasks.Task]) -> None:
        """Grade `first`, then whatever edits touch, until Ctrl-C."""
        watched = Watched(self.folder, self.selected)
        try:
            if first and self._grade(list(first)) is None:
                return
            self._say("watching", count=watched.count)
            while True:
                time.sleep(POLL_SECONDS)
                files = watched.changed()
                if not files:
                    continue
                began = time.monotonic()
                if self.console.is_terminal:
                    self.console.clear()
                self._say("watch_edit", clock=_clock(), files=", ".join(files))
                if not self._edited(files, watched.touched(files)):
                    return
                seconds = time.monotonic() - began
                self._say("watch_took", seconds=f"{seconds:.1f}")
                if self.tell is not None:
                    self.tell(files, seconds)
        except KeyboardInterrupt:
            self.console.print()

    def _edited(self, files: Sequence[str], touched: Sequence[tasks.Task]) -> bool:
        """Grade after an edit; False when the user has ended it."""
        problems = [p for p in (syntax_error(self.folder / name) for name in files) if p]
        for problem in problems:
            head = text(self.language, "syntax_error")
            self.console.print(Text.assemble((f"! {head}: ", "red"), problem))
        if problems:
            return True
        if not touched:
            self._say("watch_no_task", files=", ".join(files))
            return True
        return self._grade(touched) is not None

    def _grade(self, touched: Sequence[tasks.Task]) -> Results | None:
        try:
            results = self.run(touched)
        except CannotRun as error:
            self.console.print(Text(translated(self.language, str(error)), style="red"))
            return Results(str(self.folder), "", 0)
        return None if results.interrupted else results

    def _say(self, key: str, **values: object) -> None:
        self.console.print(Text(text(self.language, key, **values), style="dim"))


def _clock() -> str:
    return time.strftime("%H:%M:%S")
