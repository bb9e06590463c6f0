"""`grader draw`: what a solution makes, a schedule or a load of experts, as text or a picture."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from grader.checks import workers
from grader.checks.settings import CannotRun
from grader.commands.options import Solution


def draw(
    task: Annotated[str, typer.Argument(help="a6.gpipe_schedule, or a router: a8.top_k_router")],
    ranks: Annotated[int, typer.Option(min=1, help="ranks of the pipeline")] = 4,
    microbatches: Annotated[int, typer.Option(min=1, help="micro-batches of a step")] = 8,
    chunks: Annotated[int, typer.Option(min=1, help="stages a rank, of interleaved ones")] = 2,
    costs: Annotated[
        str, typer.Option(metavar="F,I,W,FB", help="seconds per stage chunk")
    ] = "1,1,1,3",
    tokens: Annotated[int, typer.Option(min=1, help="that a router is given")] = 1024,
    experts: Annotated[int, typer.Option(min=1, help="that a router chooses from")] = 16,
    k: Annotated[int, typer.Option("--k", min=1, help="experts of a token")] = 2,
    solution: Solution = "assignments",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE.svg", help="draw it here")
    ] = None,
) -> int:
    """Draw the solution's schedule, or the load of its experts."""
    from grader.report.draw_load import ROUTERS, draw_load
    from grader.report.draw_schedule import draw_schedule

    workers.start(())
    try:
        if task in ROUTERS:
            print(
                draw_load(
                    task, tokens=tokens, experts=experts, k=k, solution=solution, output=output
                )
            )
            return 0
        text = draw_schedule(
            task,
            ranks=ranks,
            microbatches=microbatches,
            solution=solution,
            output=output,
            costs=_costs(costs),
            chunks=chunks,
            colour=sys.stdout.isatty(),
        )
    finally:
        workers.stop()
    print(text)
    return 0


def _costs(text: str) -> tuple[float, ...]:
    try:
        costs = tuple(float(part) for part in text.split(","))
    except ValueError:
        costs = ()
    if len(costs) != 4 or not all(0 < cost < float("inf") for cost in costs):
        raise CannotRun(f"--costs {text}: expected F,I,W,FB, all above 0")
    return costs
