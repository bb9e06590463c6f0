"""`grader plan`: the best ways to train a model on a cluster, by a solution's own planner."""

from __future__ import annotations

from typing import Annotated

import typer

from grader.checks import workers
from grader.checks.settings import CannotRun
from grader.commands.options import Solution


def plan(
    model: Annotated[
        str, typer.Argument(metavar="MODEL|FILE", help="gpt3-175b, say, or a .toml file")
    ],
    cluster: Annotated[str, typer.Option(metavar="NAME", help="dgx-h100, say")],
    devices: Annotated[int, typer.Option(min=1, help="whole nodes, or a part of one")],
    batch_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="tokens of a step; default: as published, or 1024 sequences"),
    ] = None,
    top: Annotated[int, typer.Option(min=1, max=100, help="layouts to show")] = 5,
    solution: Solution = "assignments",
) -> int:
    """Find the best plans to train a model, by the solution's planner.

    Each with its memory, bubble, traffic and time.

    A model in a file: the fields of `given.Model`, name = "mine", layers = 24, hidden = 2048, …

    Exit status: 1 when no plan fits.
    """
    from grader.report.plans import describe, find_plans

    workers.start(())
    try:
        found = find_plans(
            model, cluster, devices, batch_tokens=batch_tokens, most=top, solution=solution
        )
    finally:
        workers.stop()
    if "error" in found:
        raise CannotRun(str(found["error"]))
    print(describe(found, cluster, solution))
    return 0 if found["rows"] else 1
