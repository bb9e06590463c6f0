"""Hints: three for each task, in two languages, in data files of an assignment each.

They lead from a first thought to nearly there. None of them is code that solves a task.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

#: How many hints a task has.
COUNT = 3


def hints_of(task: str, language: str = "en") -> list[str]:
    """The hints of a task ("a2.ring_all_reduce"), first to last; LookupError when it has none."""
    found = all_hints(task.partition(".")[0]).get(task)
    if found is None:
        raise LookupError(f"{task} has no hints")
    return list(found["zh" if language == "zh" else "en"])


@cache
def all_hints(assignment: str) -> dict[str, dict[str, list[str]]]:
    """Of an assignment ("a2"): task id → language → hints. Empty when there is no such file."""
    try:
        text = (Path(__file__).parent / f"{assignment}.toml").read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    return tomllib.loads(text)
