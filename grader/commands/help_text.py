"""`grader --help`: commands in the order in which people meet them, in the reader's language."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import typer
from rich.cells import cell_len
from rich.text import Text
from typer.core import TyperGroup

from grader.report.language import translated
from grader.report.wrap import wrap

STUDENTS: Final = (
    "check", "hint", "status", "submit", "notebook", "draw", "plan", "sim", "bench", "topo",
)  # fmt: skip
TEACHERS: Final = ("batch", "release")
#: What typer itself writes into a page of help.
WORDS: Final = (
    "Usage", "Arguments", "Options", "Commands", "For teachers", "Show this message and exit.",
    "default", "required",
)  # fmt: skip
_FORMATTER: Any = typer.Context.formatter_class


class Commands(TyperGroup):
    """The commands as a student meets them; behind them, under their own head, the teachers'."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Those of students, those of teachers, any others."""
        known = [name for name in (*STUDENTS, *TEACHERS) if name in self.commands]
        return [*known, *(name for name in self.commands if name not in known)]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write both lists, their columns in line."""
        width = max(map(len, self.commands))
        names = [name for name in self.list_commands(ctx) if not self.commands[name].hidden]
        for heading, teachers in (("Commands", False), ("For teachers", True)):
            rows = [
                (f"{name:{width}}", self.commands[name].get_short_help_str(formatter.width))
                for name in names
                if (name in TEACHERS) == teachers
            ]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


def tree(command: Any) -> Iterator[Any]:
    """A command and all below it."""
    yield command
    for each in getattr(command, "commands", {}).values():
        yield from tree(each)


def paragraphs(text: str | None) -> list[str]:
    """Of a docstring, each in one line."""
    return [" ".join(part.split()) for part in (text or "").split("\n\n") if part.strip()]


def texts(command: Any) -> Iterator[str]:
    """All that the help of a command and of those below it says."""
    for each in tree(command):
        yield from paragraphs(each.help)
        yield from paragraphs(each.epilog)
        for param in each.params:
            yield from paragraphs(getattr(param, "help", None))


def speak(command: Any, language: str) -> None:
    """Let a command and those below it tell their help in the language; changes them in place."""
    if language == "en":
        return
    for each in tree(command):
        told = [translated(language, part) for part in paragraphs(each.help)]
        each.short_help = told[0] if told else None
        each.help = "\n\n".join(told) or None
        each.epilog = "\n\n".join(translated(language, p) for p in paragraphs(each.epilog)) or None
        for param in each.params:
            if getattr(param, "help", None):
                param.help = translated(language, " ".join(param.help.split()))
        each.context_class = type(
            "Context", (each.context_class,), {"formatter_class": _ChineseFormatter}
        )


class _ChineseFormatter(_FORMATTER):  # type: ignore[misc]
    """Typer's own words in Chinese, and lines that count a Chinese character as two cells."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, args, f"{translated('zh', 'Usage')}：")

    def write_heading(self, heading: str) -> None:
        self.write(f"{'':{self.current_indent}}{translated('zh', heading)}：\n")

    def write_text(self, text: str) -> None:
        indent = " " * self.current_indent
        told = [_lines(part, self.width - self.current_indent) for part in paragraphs(text)]
        self.write("\n\n".join("\n".join(indent + line for line in lines) for lines in told))
        self.write("\n")

    def write_dl(
        self, rows: Sequence[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        indent = " " * self.current_indent
        width = min(max(cell_len(name) for name, _ in rows), col_max) + col_spacing
        for name, words in rows:
            lines = _lines(_with_brackets(words), self.width - width - self.current_indent)
            if cell_len(name) > width - col_spacing:
                self.write(f"{indent}{name}\n")
                name = ""
            self.write(f"{indent}{name}{' ' * (width - cell_len(name))}{lines[0]}\n")
            self.write("".join(f"{indent}{' ' * width}{line}\n" for line in lines[1:]))


def _lines(words: str, width: int) -> list[str]:
    return wrap(Text(words), width).plain.split("\n")


def _with_brackets(words: str) -> str:
    """ "the report  [default: report]": what typer puts in brackets is in its own words."""
    said, mark, inside = f"  {words}".rpartition("  [")
    if not mark or not inside.endswith("]"):
        return translated("zh", words)
    parts = []
    for part in inside[:-1].split("; "):
        name, colon, value = part.partition(": ")
        known = translated("zh", name)
        parts.append(f"{known}：{value}" if colon else known)
    return f"{translated('zh', said.strip())}  [{'；'.join(parts)}]".strip()
