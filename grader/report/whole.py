"""`grader check --report DIR`: keeps what is drawn while the checks run, then writes everything."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from grader.checks.benches import BENCHED, Row, bench_task
from grader.checks.results import Results
from grader.checks.settings import CannotRun, Device
from grader.harness.binding import TooFewGpus
from grader.report.draw_schedule import DRAWABLE, draw_schedule
from grader.report.files import write_report
from grader.report.run_page import Extras, write_page
from grader.report.traces import TraceKeeper

RANKS: Final = 4
SIZES: Final = tuple(1 << power for power in (16, 18, 20, 22, 24))
_ROUNDS: Final = 5


class WholeReport:
    """Entered around the checks; `write` afterwards, while the workers still run.

    throughput: bandwidths may be measured by size, for tasks that earned something.
    """

    def __init__(self, folder: Path, solution: Path, language: str, *, throughput: bool) -> None:
        self._folder = folder
        self._solution = solution
        self._language = language
        self._throughput = throughput
        self._keeper = TraceKeeper()

    def __enter__(self) -> Self:
        self._keeper.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._keeper.__exit__(kind, error, where)

    def write(self, results: Results) -> Path:
        """Write results, pictures and the page; returns the page's path. Raises OSError."""
        extras = Extras(drawn=self._keeper.drawn())
        write_report(self._folder, results, self._language)
        # The page with what there is first: to measure takes a while, and may be interrupted.
        write_page(self._folder, results, extras, self._language)
        earning = [task.task for task in results.tasks if task.points > 0]
        extras.schedules = {
            task: svg
            for task in earning
            if task in DRAWABLE and (svg := _schedule(task, self._solution)) is not None
        }
        if self._throughput:
            device: Device = "cuda" if results.device == "cuda" else "cpu"
            extras.bandwidths = {
                task: _bandwidths(task, self._solution, device)
                for task in earning
                if task in BENCHED
            }
        return write_page(self._folder, results, extras, self._language)


def _schedule(task: str, solution: Path) -> str | None:
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "schedule.svg"
        try:
            draw_schedule(task, solution=str(solution), output=file)
        except CannotRun:  # what is wrong with it, the checks have told
            return None
        return file.read_text(encoding="utf-8")


def _bandwidths(task: str, solution: Path, device: Device) -> Sequence[Row]:
    try:
        return list(bench_task(task, [("student", solution)], RANKS, SIZES, device, _ROUNDS))
    except TooFewGpus:
        return []
