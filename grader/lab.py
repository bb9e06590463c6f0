"""What the notebooks draw with: programs on simulated ranks, their pictures, plain figures.

    run = lab.run(program, ranks=4)        # program(rank), ordinary torch.distributed code
    run                                    # its picture: ranks over virtual time
    run.on("dgx-h100")                     # the same run on another machine

Figures are SVG with real text: small, sharp, and shown in the reader's own fonts.
"""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Callable, Sequence
from typing import Any

from grader.checks.settings import project_folder
from grader.fabric import SimulationResult, simulate
from grader.fabric.cluster import Cluster, uniform
from grader.fabric.picture import draw, seconds_text
from grader.fabric.trace import TimedTrace, Trace

__all__ = [
    "COLOURS", "Run", "Svg", "assignments_here", "figure", "rectangle", "run", "seconds_text",
    "show", "table", "uniform",
]  # fmt: skip

#: Colours that can be told apart by everybody, on white and on black.
COLOURS = ("#2f6fd0", "#e08a1e", "#2a9d6f", "#8a5cd1", "#c0362c", "#7a8391", "#17a2b8", "#8c6d31")


class Svg:
    """A picture that a notebook shows."""

    def __init__(self, text: str) -> None:
        self.text = text

    def _repr_svg_(self) -> str:
        return self.text


class Run:
    """A program's run on simulated ranks, timed on a cluster. A notebook shows its picture."""

    def __init__(
        self, result: SimulationResult, cluster: Cluster, title: str, *, drawn: bool = True
    ) -> None:
        self._result = result
        self._drawn = drawn
        self._title = title
        self.timed: TimedTrace = Trace(result.record).on(cluster)

    def on(self, cluster: str | Cluster) -> Run:
        """The same run on another cluster: a preset's name ("dgx-h100"), or a cluster."""
        return Run(self._result, _cluster(cluster, self.timed.record.world_size), self._title)

    @property
    def seconds(self) -> float:
        """Virtual time of the whole run."""
        return self.timed.makespan

    @property
    def picture(self) -> str:
        """Ranks over virtual time, as SVG."""
        return draw(self.timed.timeline, self._title)

    def _ipython_display_(self) -> None:
        display: Any = importlib.import_module("IPython.display").display
        if self._drawn:  # a stub that was called has done nothing worth a picture
            display({"image/svg+xml": self.picture}, raw=True)


def run(
    program: Callable[[int], Any],
    ranks: int = 4,
    cluster: str | Cluster = "uniform",
    *,
    title: str = "",
    compute: bool = False,
) -> Run:
    """Run program(rank) on simulated ranks, and print what is wrong with it, if anything.

    A stub that nobody has filled in yet is told in one line. compute: record FLOPs, for the clock.
    """
    result = simulate(
        lambda rank, _: program(rank), ranks, compute=compute, packages=("assignments",)
    )
    missing = [e for e in result.errors.values() if e.type == "NotImplementedError"]
    if missing:
        print(f"{missing[0].message} is not written yet: fill in its cell and run this again.")
    else:
        for finding in (*result.findings, *result.warnings):
            print(f"{finding.severity}: {finding.message}\n")
    name = title or program.__name__
    return Run(result, _cluster(cluster, ranks), name, drawn=not missing)


def _cluster(cluster: str | Cluster, ranks: int) -> Cluster:
    return Cluster.preset(cluster, ranks) if isinstance(cluster, str) else cluster


def assignments_here() -> None:
    """Make `import assignments…` work, wherever the notebook was started."""
    folder = str(project_folder())
    if folder not in sys.path:
        sys.path.insert(0, folder)


def figure(
    columns: int = 1, width: float = 8.0, height: float = 3.6, **options: Any
) -> tuple[Any, Any]:
    """(figure, axes) of matplotlib in the notebooks' style; several columns: a list of axes."""
    from cycler import cycler
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(width, height), layout="constrained")
    axes = drawing.subplots(1, columns, **options)
    for each in [axes] if columns == 1 else axes:
        each.set_prop_cycle(cycler(color=COLOURS))
        each.spines[["top", "right"]].set_visible(False)
        each.grid(True, alpha=0.3, linewidth=0.6)
        each.set_axisbelow(True)
    return drawing, axes


def show(drawing: Any) -> Svg:
    """The figure as a picture."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "tinyparallel"}):
        drawing.savefig(buffer, format="svg", metadata={"Date": None})
    return Svg(buffer.getvalue())


def table(rows: Sequence[Sequence[object]]) -> None:
    """Print rows in columns; the first row holds the heads."""
    words = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in words) for column in range(len(words[0]))]
    for row in words:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


def rectangle(x: float, y: float, size: float, colour: str) -> Any:
    """A filled square of a figure: axes.add_patch(lab.rectangle(…))."""
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), size, size, color=colour)
