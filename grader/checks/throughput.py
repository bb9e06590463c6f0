"""Throughput checks: a ratio to a baseline, measured here and now, as points.

    @check("a2.ring_all_reduce", 6.5, "keeps up with the library's all-reduce")
    def test_ring_throughput(throughput):
        throughput.judge(
            "a2.ring_all_reduce", "timed:all_reduce", "timed:library_all_reduce",
            problems.all_reduce(ranks=4, nbytes=16 << 20), Plan(floor=0.35, full=0.7), allow="p2p",
        )

A timed driver is `driver(context, given, buffers)` and returns the step: a function without
arguments that reads and writes the buffers by name. It may use the student's code through
`context`; the baseline's driver never does, and runs in processes that never load it.
"""

from __future__ import annotations

import secrets
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import pytest

from grader.checks import workers
from grader.checks.framework import Award, CheckFailed
from grader.checks.real_world import world_failure
from grader.checks.settings import Settings
from grader.harness import Limits
from grader.harness.binding import TooFewGpus
from grader.harness.throughput import Measurement, Plan, Problem, compare
from grader.harness.throughput_world import Contender
from grader.harness.worlds import WorldFailed, WorldOptions

PREPARE = "grader.checks.real_entry:prepare"
_WALL_SECONDS = 30.0
_MEMORY_BYTES = 4 << 30

__all__ = ["PREPARE", "Plan", "Problem", "Throughput", "Timed"]


@dataclass(frozen=True)
class Timed:
    """A problem for a number of ranks. given: what each rank's drivers are given beside it."""

    problem: Problem
    given: Sequence[Any]

    @property
    def ranks(self) -> int:
        """How many ranks work on it."""
        return len(self.given)


class Throughput:
    """Times the solution under test. The `throughput` fixture."""

    def __init__(
        self, settings: Settings, metrics: dict[str, Any], award: Award, cache: str | None = None
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._award = award
        self._cache = cache

    @property
    def device(self) -> str:
        """ "cpu" or "cuda": sizes that suit the one do not suit the other."""
        return self._settings.device

    def judge(
        self,
        task: str,
        student: str,
        baseline: str,
        timed: Timed,
        plan: Plan,
        *,
        allow: str | None = None,
        baseline_name: str = "the baseline",
        only: str | None = None,
    ) -> None:
        """Measure `student` against `baseline` (timed drivers) and give points by the ratio.

        allow: "p2p" refuses the student's code all collectives. baseline_name: for people.
        only: "cuda" skips on the CPU.

        Raises CheckFailed when a result is wrong or the ratio is not above the floor; skips with
        --no-throughput, --in-process, and where there are fewer GPUs than ranks.
        """
        if not self._settings.throughput:
            pytest.skip("throughput is not measured with --no-throughput")
        if self._settings.in_process:
            pytest.skip("throughput is not measured with --in-process")
        if only is not None and self.device != only:
            pytest.skip(f"throughput of {task} is measured on {only} only")
        self._metrics |= {"baseline": baseline_name, "floor": plan.floor, "full": plan.full}
        try:
            measured = compare(
                workers.server(),
                Contender("student", PREPARE, self._given(student, timed, True), allow),
                Contender("baseline", PREPARE, self._given(baseline, timed, False)),
                timed.problem,
                plan,
                limits=Limits(wall_seconds=_WALL_SECONDS, memory_bytes=_MEMORY_BYTES),
                options=WorldOptions(device=self._settings.device),
            )
        except TooFewGpus as few:
            pytest.skip(str(few))
        except WorldFailed as failed:
            raise world_failure(failed.reply, task) from None
        self._points(measured, plan, baseline_name)

    def _given(self, driver: str, timed: Timed, solution: bool) -> list[dict[str, Any]]:
        common = {
            "driver": driver,
            "folder": str(self._settings.folder) if solution else None,
            "cache": self._cache,
            "seed": secrets.randbits(32),
        }
        return [{**common, "given": given} for given in timed.given]

    def _points(self, measured: Measurement, plan: Plan, baseline: str) -> None:
        if measured.wrong is not None:
            wrong = measured.wrong
            self._fail(f"timed call {wrong.step}: {wrong.message}; no time counts", wrong.cause)
        if measured.replaced:
            names = ", ".join(measured.replaced)
            self._fail(
                f"the solution replaced {names}; no time counts",
                "functions that belong to everybody were patched",
            )
        self._metrics |= describe(measured)
        fraction = measured.fraction(plan)
        words = in_words(measured, plan, baseline)
        if fraction <= 0.0:
            self._fail(words, None)
        if fraction < 1.0:
            self._award(fraction, words)

    def _fail(self, message: str, cause: str | None) -> NoReturn:
        raise CheckFailed(message, cause=cause)


def describe(measured: Measurement) -> dict[str, Any]:
    """A measurement as numbers for JSON; seconds are medians."""
    low, high = measured.spread
    return {
        "ratio": round(measured.ratio, 4),
        "ratio_low": round(low, 4),
        "ratio_high": round(high, 4),
        "pairs": len(measured.ratios),
        "looks": measured.looks,
        "seconds": statistics.median(measured.student_seconds),
        "baseline_seconds": statistics.median(measured.baseline_seconds),
    }


def in_words(measured: Measurement, plan: Plan, baseline: str) -> str:
    """What was measured, for the student: the ratio, its spread, and what it is worth."""
    low, high = measured.spread
    own = statistics.median(measured.student_seconds) * 1e3
    theirs = statistics.median(measured.baseline_seconds) * 1e3
    looks = ", the better of two looks" * (measured.looks > 1)
    crowd = "; another grader was measuring at the same time" * (not measured.alone)
    return (
        f"{measured.ratio:.2f} of the speed of {baseline} ({low:.2f}–{high:.2f}; median of "
        f"{len(measured.ratios)} pairs{looks}; {own:.1f} ms against {theirs:.1f} ms); "
        f"no points up to {plan.floor:g}, all from {plan.full:g}{crowd}"
    )
