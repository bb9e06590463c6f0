"""The telling lines of the solutions, to look for where no answer may stand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from grader.marks import find_blocks

ROOT = Path(__file__).resolve().parents[2]
#: Shorter lines ("return tensor") occur anywhere and give nothing away.
SHORTEST = 28


def solution_lines() -> set[str]:
    """Every line that stands between marks in `reference/`, without blanks, long enough to tell.

    Lines that stand outside the marks of some file too are given to everybody.
    """
    inside: set[str] = set()
    outside: set[str] = set()
    for path in sorted((ROOT / "reference").rglob("*")):
        if path.suffix not in (".py", ".cu"):
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        hidden: set[int] = set()
        for block in find_blocks("\n".join(lines), path.name):
            hidden |= set(range(block.begin, block.end + 1))
        for number, line in enumerate(lines, start=1):
            (inside if number in hidden else outside).add(squeezed(line))
    return {line for line in inside - outside if len(line) >= SHORTEST and _telling(line)}


def squeezed(line: str) -> str:
    """A line without blanks: how it is indented or broken does not hide an answer."""
    return re.sub(r"\s+", "", line)


def _telling(line: str) -> bool:
    return not line.startswith(("#", "//", '"""', "import", "from", "@"))


def answers_in(texts: Iterator[tuple[str, str]], lines: set[str]) -> list[str]:
    """ "name:line" of every line of the texts that holds a line of the solutions."""
    found = []
    for name, text in texts:
        for number, line in enumerate(text.splitlines(), start=1):
            bare = squeezed(line)
            if len(bare) >= SHORTEST and bare in lines:
                found.append(f"{name}:{number}: {line.strip()}")
    return found


def passages_in(texts: Iterator[tuple[str, str]], lines: set[str]) -> list[str]:
    """ "name:line" of every two lines in a row that both are lines of the solutions.

    For the kit's own code: one line alone (`work = dist.all_reduce(…)`) may well occur twice.
    """
    found = []
    for name, text in texts:
        rows = [(n, squeezed(row)) for n, row in enumerate(text.splitlines(), start=1)]
        rows = [(n, row) for n, row in rows if row]
        for (_, before), (number, row) in pairwise(rows):
            if before in lines and row in lines:
                found.append(f"{name}:{number}: {row}")
    return found
