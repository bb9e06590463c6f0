"""Where submissions are graded: in threads that watch examiners here, or as jobs of a cluster."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from grader.checks.settings import CannotRun
from grader.submission.work import Outcome, Work, grade

Name = Literal["local", "slurm", "slurm-local"]
_SPARE_MINUTES: Final = 10


class Handle(Protocol):
    """Work that was handed out; concurrent.futures and submitit agree on these two."""

    def done(self) -> bool:
        """Whether `result` returns at once."""

    def result(self) -> Outcome:
        """What became of it. Raises what the work raised."""


class Executor(Protocol):
    """Grades what it is handed."""

    def submit(self, work: Work) -> Handle:
        """Start it, or queue it."""

    def close(self) -> None:
        """End what still runs."""


class LocalExecutor:
    """So many examiners of this machine at once."""

    def __init__(self, jobs: int) -> None:
        self._stopped = threading.Event()
        self._pool = ThreadPoolExecutor(jobs, thread_name_prefix="examiner")

    def submit(self, work: Work) -> Handle:
        """Queue it for the next free examiner."""
        return self._pool.submit(grade, work, self._stopped)

    def close(self) -> None:
        """Kill the examiners that still run and their trees."""
        self._stopped.set()
        self._pool.shutdown(wait=True, cancel_futures=True)


class SubmititExecutor:
    """Jobs of Slurm, or with cluster "local" processes that stand in for them.

    folder: on a file system that all nodes see; job files lie there.
    """

    def __init__(
        self, folder: Path, jobs: int, cluster: Literal["slurm", "local"], seconds: float
    ) -> None:
        try:
            import submitit  # type: ignore[import-not-found,unused-ignore]
        except ImportError:
            raise CannotRun(
                "--executor slurm needs submitit: pip install 'tinyparallel[slurm]'"
            ) from None
        folder.mkdir(parents=True, exist_ok=True)
        self._executor = submitit.AutoExecutor(folder, cluster=cluster)
        minutes = int(seconds // 60) + _SPARE_MINUTES
        self._executor.update_parameters(
            timeout_min=minutes,
            name="tinyparallel",
            slurm_array_parallelism=jobs,
            slurm_additional_parameters={"exclusive": ""} if jobs == 1 else {},
        )
        self._jobs: list[Any] = []

    def submit(self, work: Work) -> Handle:
        """Hand it to the cluster."""
        job: Any = self._executor.submit(grade, work)
        self._jobs.append(job)
        handle: Handle = job
        return handle

    def close(self) -> None:
        """Cancel what has not ended."""
        for job in self._jobs:
            if not job.done():
                job.cancel()


def make_executor(name: Name, jobs: int, folder: Path, seconds: float) -> Executor:
    """An executor for `jobs` submissions at once, each of which takes at most `seconds`."""
    if name == "local":
        return LocalExecutor(jobs)
    cluster: Literal["slurm", "local"] = "slurm" if name == "slurm" else "local"
    return SubmititExecutor(folder, jobs, cluster, seconds)
