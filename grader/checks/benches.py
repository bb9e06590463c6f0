"""What `grader bench` measures: a task's function beside the reference's and the library's."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from grader import tasks
from grader.checks import problems, workers
from grader.checks.real_world import world_failure
from grader.checks.settings import Device
from grader.checks.throughput import PREPARE, Timed
from grader.harness import Limits
from grader.harness.throughput_series import Series, measure
from grader.harness.throughput_world import Contender
from grader.harness.worlds import WorldOptions

_MEMORY_BYTES = 8 << 30
_BURST_NBYTES = 16 << 20
_MOST_REPEATS = 100


@dataclass(frozen=True)
class Benched:
    """How a task is timed. factor(ranks): from algbw to busbw, as nccl-tests define it."""

    student: str
    library: str
    problem: Callable[..., Timed]
    factor: Callable[[int], float]
    redop: str
    allow: str | None


def _all_reduce_factor(ranks: int) -> float:
    return 2 * (ranks - 1) / ranks


_ALL_REDUCE = Benched(
    "timed:all_reduce",
    "timed:library_all_reduce",
    problems.all_reduce,
    _all_reduce_factor,
    "sum",
    "p2p",
)

BENCHED: dict[str, Benched] = dict.fromkeys(
    (
        "a1.all_reduce_pairwise",
        "a1.all_reduce_parameter_server",
        "a2.ring_all_reduce",
        "a2.pipelined_ring_all_reduce",
        "a2.halving_doubling_all_reduce",
    ),
    _ALL_REDUCE,
)


@dataclass(frozen=True)
class Row:
    """One line of the table. who: "student", "reference" or the backend's name.

    nbytes: of the whole array; seconds: median of a call; algbw, busbw: bytes/s; wrong: elements
    over all calls; spread: quartiles of the seconds. note: why there are no numbers.
    """

    task: str
    who: str
    ranks: int
    nbytes: int
    count: int
    dtype: str
    redop: str
    seconds: float | None
    spread: tuple[float, float] | None
    algbw: float | None
    busbw: float | None
    wrong: int
    rounds: int
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """As JSON holds it."""
        return asdict(self)


def bench_task(
    task: str,
    solutions: Sequence[tuple[str, Path]],
    ranks: int,
    sizes: Sequence[int],
    device: Device,
    rounds: int = 9,
) -> Iterator[Row]:
    """Rows for one task, size by size. solutions: ("student", folder), ("reference", folder).

    Raises KeyError for a task that is not in `BENCHED`, TooFewGpus.
    """
    benched = BENCHED[task]
    backend = "gloo" if device == "cpu" else "nccl"
    for nbytes in sizes:
        timed = benched.problem(ranks, nbytes, given=task)
        contenders = [
            Contender(who, PREPARE, _given(benched.student, timed, folder), benched.allow)
            for who, folder in solutions
        ]
        contenders.append(Contender(backend, PREPARE, _given(benched.library, timed, None)))
        series = measure(
            workers.server(),
            contenders,
            timed.problem,
            rounds,
            repeats=max(1, min(_MOST_REPEATS, _BURST_NBYTES // nbytes)),
            limits=Limits(wall_seconds=60.0, memory_bytes=_MEMORY_BYTES),
            options=WorldOptions(device=device),
        )
        for contender, result in zip(contenders, series, strict=True):
            yield _row(task, benched, contender.name, ranks, nbytes, result)


def _given(driver: str, timed: Timed, folder: Path | None) -> list[dict[str, Any]]:
    common = {
        "driver": driver,
        "folder": None if folder is None else str(folder),
        "seed": secrets.randbits(32),
    }
    return [{**common, "given": given} for given in timed.given]


def _row(task: str, benched: Benched, who: str, ranks: int, nbytes: int, result: Series) -> Row:
    note, seconds = "", result.median if result.seconds else None
    if result.failure is not None:
        note, seconds = str(world_failure(result.failure, task)).splitlines()[0], None
    ordered = sorted(result.seconds)
    algbw = None if seconds is None else nbytes / seconds
    return Row(
        task,
        who,
        ranks,
        nbytes,
        nbytes // 4,
        "float",
        benched.redop,
        seconds,
        (ordered[len(ordered) // 4], ordered[-1 - len(ordered) // 4]) if seconds else None,
        algbw,
        None if algbw is None else algbw * benched.factor(ranks),
        result.wrong,
        len(result.seconds),
        note,
    )


def benched_tasks(whats: Sequence[str]) -> list[str]:
    """Ids of the tasks that `whats` name and that can be timed, in the table's order.

    Raises `tasks.UnknownTask`.
    """
    return [task.id for task in tasks.select(whats) if task.id in BENCHED]
