"""Running small programs that have one fault, or almost have it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from grader.fabric import Finding, SimulationResult, simulate

Program = Callable[[int, Any], Any]


def run(program: Program, ranks: int = 2, **options: Any) -> SimulationResult:
    return simulate(program, ranks, **options)


def the_finding(program: Program, ranks: int = 2, **options: Any) -> Finding:
    result = run(program, ranks, **options)
    assert result.findings, "nothing was found"
    return result.findings[0]


def assert_clean(program: Program, ranks: int = 2, **options: Any) -> SimulationResult:
    result = run(program, ranks, **options)
    assert not result.findings, result.findings[0].message
    assert not result.warnings, result.warnings[0].message
    return result


def line_of(program: Program, mark: str) -> int:
    """The line of its file that carries `# mark` inside `program`."""
    lines, first = inspect.getsourcelines(program)
    for number, line in enumerate(lines, start=first):
        if line.rstrip().endswith(f"# {mark}"):
            return number
    raise AssertionError(f"no line marked {mark}")
