"""Fetching everybody's files; where the host knows no such commit, the link before it counts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Final

from grader import tasks
from grader.submission.choose import Choice, Dead
from grader.submission.clone import CloneError, Fetched, fetch
from grader.submission.git import GitLimits
from grader.submission.links import Link
from grader.submission.progress import Progress, told
from grader.submission.store import Row, Store

_FETCHES: Final = 4


@dataclass(frozen=True)
class Fetching:
    """How to fetch. selected: what is graded. only: nobody but these students, where any is named.

    local: repositories on this machine may be read.
    """

    selected: Sequence[tasks.Task]
    limits: GitLimits
    only: Collection[str] = ()
    local: bool = False
    language: str = "en"


class Fetcher:
    """Brings the files of the links that count into the store, and settles which links these are.

    choose: the links that count when these are dead. `choice` is what the store holds now; a kill
    at any moment leaves a store from which the next run settles the same.
    """

    def __init__(
        self,
        store: Store,
        choose: Callable[[Dead], Choice],
        how: Fetching,
        say: Callable[[str], None],
    ) -> None:
        self._store = store
        self._choose = choose
        self._how = how
        self._say = say
        self.choice = choose({})

    def settle(self) -> None:
        """Take what counts by all that is known of dead links."""
        self._take(self._store.missing())

    def fetch(self, scratch: str) -> None:
        """Fetch what is not here yet, several at once; what failed before is tried again.

        scratch: where clones may lie.
        """
        tried: set[int] = set()
        while True:
            # A link that was dead before is dead only once it has been tried again.
            self._take([r for r in self._store.missing() if r.id in tried or not self._is_mine(r)])
            rows = [
                row
                for row in self._store.rows("new", "dead")
                if row.id not in tried and self._is_mine(row)
            ]
            if not rows:
                return
            self._fetch(rows, scratch)
            tried |= {row.id for row in rows}

    def _is_mine(self, row: Row) -> bool:
        return not self._how.only or row.student in self._how.only

    def _take(self, missing: Sequence[Row]) -> None:
        self.choice = self._choose({(row.student, link_of(row)): row.note for row in missing})
        self._store.take(self.choice.submissions)

    def _fetch(self, rows: Sequence[Row], scratch: str) -> None:
        # All files of the table: one assignment may build on another.
        paths = tasks.student_files()
        how, language = self._how, self._how.language
        progress = Progress("fetched", len(rows), self._say, language)
        with ThreadPoolExecutor(_FETCHES, thread_name_prefix="fetch") as pool:
            running = {
                pool.submit(
                    fetch, link_of(row), paths, limits=how.limits, local=how.local, scratch=scratch
                ): row
                for row in rows
            }
            try:
                for future in as_completed(running):
                    row = running[future]
                    try:
                        found = future.result()
                    except CloneError as error:
                        missing = error.kind == "missing"
                        self._store.dead(row.id, str(error), missing)
                        what = "dead link" if missing else "not fetched"
                        progress.step(told(row, language, what, str(error)))
                    else:
                        remarks = self._remarks(found, row)
                        self._store.fetched(row.id, found.sha, found.files, remarks)
                        progress.step(told(row, language, found.sha[:12]))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _remarks(self, found: Fetched, row: Row) -> list[str]:
        selected = self._how.selected
        wanted = [t.path for t in selected if t.id.partition(".")[0] in row.assignments]
        missing = [path for path in found.missing if path in wanted]
        remarks = [*found.warnings, *found.misplaced]
        if missing:
            remarks.append(f"not in the commit: {', '.join(dict.fromkeys(missing))}")
        remarks += [f"not taken: {why}" for why in found.refused.values()]
        return remarks


def link_of(row: Row) -> Link:
    """What was chosen for it."""
    hexadecimal = not row.ref.strip("0123456789abcdef")
    if hexadecimal and len(row.ref) == 40:
        return Link(row.url, row.ref, "sha")
    return Link(row.url, row.ref, "short" if hexadecimal and len(row.ref) >= 7 else "ref")
