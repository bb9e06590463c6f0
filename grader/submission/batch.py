"""`grader batch`: from a sheet of links to a gradebook; killed at any moment, it goes on.

Three parts: fetch everybody's files; grade them, several at once; time what is worth timing, one
at a time. All that is known stands in the database of the folder, and every page can be made from
it: only this process writes there, and it reads students' files as bytes.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from grader import tasks
from grader.checks.settings import CannotRun
from grader.harness.directories import remove_directory
from grader.report.language import text, translated
from grader.submission import confinement, executors
from grader.submission.books import Books
from grader.submission.choose import Choice, Dead, choose
from grader.submission.course import Course
from grader.submission.fetching import Fetcher, Fetching
from grader.submission.git import GitLimits
from grader.submission.grades import StudentGrade
from grader.submission.kit import KIT, kit_name, require_untouched
from grader.submission.progress import Progress, in_words, told
from grader.submission.sheet import read_sheet
from grader.submission.store import Row, Store
from grader.submission.work import Outcome, Part, Work, add_throughput, default_seconds, left_out

_LOOK_SECONDS: Final = 0.05
_SCRATCH: Final = "tinyparallel-batch-"
Say = Callable[[str], None]


@dataclass(frozen=True)
class BatchOptions:
    """How to grade. jobs: submissions at once; seconds: wall time for each (None: by its tasks).

    only: grade these students again. any_kit: even with another version of the kit than before.
    strict: no links to branches. allow_local: paths for links. unsandboxed: the user knows that
    the students' code can read and write what he can. seed: of all inputs, else a secret one.
    language: of what is said, and of the pages.
    """

    device: str = "auto"
    throughput: bool = True
    jobs: int = 1
    seconds: float | None = None
    only: tuple[str, ...] = ()
    any_kit: bool = False
    strict: bool = False
    allow_local: bool = False
    unsandboxed: bool = False
    seed: int | None = None
    executor: executors.Name = "local"
    language: str = "en"
    fetch_limits: GitLimits = field(default_factory=GitLimits)


def run_batch(
    sheet: Path,
    whats: Sequence[str],
    out: Path,
    options: BatchOptions,
    say: Say = print,
    course: Course | None = None,
) -> list[StudentGrade]:
    """Grade every student's latest valid link that is not graded yet; write all that follows.

    Raises `CannotRun`, `BadSheet`, `tasks.UnknownTask`, OSError.
    """
    reason = None if options.unsandboxed else confinement.missing()
    if reason is not None:
        raise CannotRun(
            f"batch: students' code cannot be confined here: {reason}. --unsandboxed grades all "
            "the same; their code can then read and write what you can"
        )
    course = course or Course()
    selected = tasks.select(whats or list(course.weights))
    keys = list(dict.fromkeys(task.id.partition(".")[0] for task in selected))
    read = read_sheet(sheet, course.columns, course.zone)
    language = options.language
    for note in read.notes:
        say(text(language, "note", message=translated(language, note)))

    def choice(dead: Dead) -> Choice:
        return choose(
            read, course, keys, strict=options.strict, local=options.allow_local, dead=dead
        )

    for unread in choice({}).unread:
        who = unread.entry.student or "—"
        line = f"line {unread.entry.line} ({who}) does not count: {unread.reason}"
        say(translated(language, line))
    store = Store(out)
    try:
        how = Fetching(selected, options.fetch_limits, options.only, options.allow_local, language)
        fetcher = Fetcher(store, choice, how, say)
        books = Books(store, out, course, fetcher.choice, selected, language)
        batch = _Batch(store, out, books, course, fetcher, selected, options, say)
        batch.prepare()
        with scratch_folder(store) as scratch:
            fetcher.fetch(scratch)
            books.choice = fetcher.choice
            batch.grade("correctness", scratch)
            if options.throughput:
                batch.grade("throughput", scratch)
        return books.write(sheet.stem)
    finally:
        store.close()


@contextlib.contextmanager
def scratch_folder(store: Store) -> Iterator[str]:
    """A folder for what lasts no longer than this run; what a killed run left is removed."""
    before = store.meta("scratch")
    if before is not None and Path(before).name.startswith(_SCRATCH):
        remove_directory(before)
    folder = tempfile.mkdtemp(prefix=_SCRATCH)
    store.keep("scratch", folder)
    try:
        yield folder
    finally:
        remove_directory(folder)


class _Batch:
    def __init__(
        self,
        store: Store,
        out: Path,
        books: Books,
        course: Course,
        fetcher: Fetcher,
        selected: Sequence[tasks.Task],
        options: BatchOptions,
        say: Say,
    ) -> None:
        self._store = store
        self._out = out
        self._books = books
        self._course = course
        self._fetcher = fetcher
        self._selected = selected
        self._options = options
        self._say = say
        self._kit = kit_name()
        self._seed = 0

    def prepare(self) -> None:
        """See that the folder is of this batch, and take what the sheet says now."""
        require_untouched()
        options = self._options
        settings = json.dumps(
            {
                "tasks": [task.id for task in self._selected],
                "device": options.device,
                "throughput": options.throughput,
                "sandboxed": not options.unsandboxed,
            }
        )
        before = self._store.meta("settings")
        if before not in (None, settings):
            raise CannotRun(
                f"{self._out} holds a batch of other tasks or options ({before}): name another "
                "folder, or use the same again"
            )
        self._store.keep("settings", settings)
        kept = self._store.meta("seed")
        if kept is None:
            # Nobody can prepare for inputs of a seed that did not exist when he handed in.
            kept = str(secrets.randbits(31) if options.seed is None else options.seed)
            self._store.keep("seed", kept)
        elif options.seed is not None and int(kept) != options.seed:
            raise CannotRun(f"{self._out} was begun with seed {kept}, not {options.seed}")
        self._seed = int(kept)
        self._fetcher.settle()
        self._again()
        other = {row.kit for row in self._store.rows("graded", "done")} - {self._kit}
        if other and not options.any_kit:
            raise CannotRun(
                f"{self._out} was graded with kit {', '.join(sorted(other))}, this one is "
                f"{self._kit}: install that one, or mix them knowingly with --any-kit"
            )

    def _again(self) -> None:
        rows = self._store.rows()
        named: list[Row] = []
        # Everybody is looked at before anything of anybody is changed.
        for student in self._options.only:
            own = [row for row in rows if row.student == student]
            if not own:
                raise CannotRun(f"--only {student}: nobody of that name has a link that counts")
            for row in own:
                if row.kit not in ("", self._kit) and not self._options.any_kit:
                    raise CannotRun(
                        f"{student} was graded with kit {row.kit}, this one is {self._kit}: "
                        "install that one, or grade with another knowingly with --any-kit"
                    )
            named += own
        for row in named:
            if row.state in ("graded", "done"):
                self._store.again(row.id)

    def _mine(self, *states: str) -> list[Row]:
        only = self._options.only
        return [
            row
            for row in self._store.rows()
            if row.state in states and (not only or row.student in only)
        ]

    def grade(self, part: Part, scratch: str) -> None:
        """Correctness of all that is fetched; or throughput of all that is graded, in turn."""
        rows = self._mine("fetched" if part == "correctness" else "graded")
        if not rows:
            return
        jobs = max(1, self._options.jobs) if part == "correctness" else 1
        most = max(self._limit(self._ids(row)) for row in rows)
        executor = executors.make_executor(self._options.executor, jobs, self._out / "jobs", most)
        language = self._options.language
        verb = "graded" if part == "correctness" else "timed"
        progress = Progress(verb, len(rows), self._say, language)
        running: dict[executors.Handle, Row] = {}
        waiting = list(reversed(rows))
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    row = waiting.pop()
                    work = self._work(row, part, scratch)
                    if work is None:
                        self._timed(row, None)
                        progress.step(told(row, language, "nothing to time"))
                        continue
                    self._store.began(row.id, part)
                    running[executor.submit(work)] = row
                over = [handle for handle in running if handle.done()]
                for handle in over:
                    row = running.pop(handle)
                    outcome = _outcome(handle)
                    if part == "correctness":
                        self._graded(row, outcome)
                    else:
                        self._timed(row, outcome)
                    self._books.update(row.student)
                    progress.step(in_words(self._store.row(row.id), language))
                if not over and running:
                    time.sleep(_LOOK_SECONDS)
        finally:
            executor.close()

    def _ids(self, row: Row) -> list[str]:
        return [t.id for t in self._selected if t.id.partition(".")[0] in row.assignments]

    def _limit(self, ids: Sequence[str]) -> float:
        return self._options.seconds or self._course.seconds or default_seconds(ids)

    def _work(self, row: Row, part: Part, scratch: str) -> Work | None:
        ids = self._ids(row)
        if part == "throughput":
            assert row.document is not None, "only what was graded is timed"
            ids = [
                task["task"]
                for task in row.document["tasks"]
                if task["points"] > 0 and any(left_out(check) for check in task["checks"])
            ]
            if not ids:
                return None
        return Work(
            files=self._store.files(row.id),
            tasks=ids,
            project=str(KIT),
            seed=row.seed or self._seed,
            device=self._options.device,
            part=part,
            seconds=self._limit(ids),
            sandboxed=not self._options.unsandboxed,
            # Another machine has no such folder.
            scratch=scratch if self._options.executor == "local" else "",
        )

    def _graded(self, row: Row, outcome: Outcome) -> None:
        complete = outcome.status == "graded" and outcome.document is not None
        self._store.graded(
            row.id,
            state="graded" if complete and self._options.throughput else "done",
            status=outcome.status,
            note=outcome.note,
            document=outcome.document,
            seed=row.seed or self._seed,
            kit=self._kit,
            seconds=outcome.seconds,
        )

    def _timed(self, row: Row, outcome: Outcome | None) -> None:
        assert row.document is not None, "only what was graded is timed"
        note = "" if outcome is None or outcome.status == "graded" else outcome.note
        timed = None if outcome is None else outcome.document
        self._store.graded(
            row.id,
            state="done",
            status=row.status,
            note=f"throughput: {note}" if note else row.note,
            document=add_throughput(row.document, timed, note),
            seed=row.seed,
            kit=row.kit,
            seconds=0.0 if outcome is None else outcome.seconds,
        )


def _outcome(handle: executors.Handle) -> Outcome:
    try:
        return handle.result()
    except (CannotRun, KeyboardInterrupt):
        raise
    except Exception as error:  # whatever a cluster says of a job that it lost
        words = str(error).strip().splitlines() or [type(error).__name__]
        return Outcome("error", f"the job was lost: {words[-1][:300]}", None, 0.0)
