"""`grader draw`: the schedule that a solution makes, as a picture or as text in the terminal.

The solution's code runs in a worker, as always; timing and drawing are done there too, by the
given modules beside it. What comes back is text.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grader import tasks
from grader.checks.framework import CheckFailed
from grader.checks.settings import CannotRun, Settings, solution_folder
from grader.checks.world import SimulatedCluster
from grader.report.draw_load import ROUTERS

#: Tasks that make schedules, and how many chunks a rank they are asked for (`None`: not asked).
DRAWABLE: dict[str, int | None] = {
    "a6.gpipe_schedule": None,
    "a6.one_f_one_b_schedule": None,
    "a6.interleaved_schedule": 2,
    "a6.zero_bubble_schedule": None,
    "a7.dualpipe_schedule": None,
    "a7.dualpipev_schedule": None,
}


def draw_schedule(
    task: str,
    *,
    ranks: int = 4,
    microbatches: int = 8,
    solution: str = "assignments",
    output: Path | None = None,
    costs: Sequence[float] = (1.0, 1.0, 1.0, 3.0),
    chunks: int | None = None,
    colour: bool = False,
    in_process: bool = False,
) -> str:
    """Draw what `task` ("a7.dualpipe_schedule") of `solution` makes for `ranks` × `microbatches`.

    output: an SVG file to write; `None`: nothing is written. costs: (F, I, W, FB). chunks: stages a
    rank, of the interleaved schedule. colour: with the terminal's colours.
    Returns the text to print: the schedule over time, or what was written where.

    Raises `CannotRun` when the task makes nothing to draw, the file cannot be written, or the
    solution's code fails; the message says which.
    """
    found = tasks.find(task)
    if found.id not in DRAWABLE:
        raise CannotRun(
            f"{task} makes nothing to draw; there are {', '.join((*DRAWABLE, *ROUTERS))}"
        )
    arguments = [ranks, microbatches]
    default = DRAWABLE[found.id]
    if default is not None:
        arguments.append(chunks or default)
    title = f"{found.attribute}({', '.join(map(str, arguments))}) of {solution}"
    settings = Settings(solution, solution_folder(solution), in_process=in_process)
    given = {
        "task": task,
        "arguments": arguments,
        "costs": [float(cost) for cost in costs],
        "title": title,
        "colour": colour,
    }
    try:
        outputs, _ = SimulatedCluster(settings, {}).run("a6:draw", [given], task=task)
    except CheckFailed as failure:
        raise CannotRun(failure.message) from None
    drawing = outputs[0]
    if output is None:
        return f"{title}\n{drawing['text']}"
    try:
        output.write_text(str(drawing["svg"]), encoding="utf-8")
    except OSError as error:
        raise CannotRun(f"cannot write {output}: {error.strerror}") from None
    summary = str(drawing["text"]).partition("\n")[0]
    return f"wrote {output}: {summary}"
