"""The memory of a batch: a SQLite database that is right at every moment it may be killed."""

from __future__ import annotations

import contextlib
import fcntl
import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal

from grader.checks.settings import CannotRun
from grader.harness.words import clean, cleaned
from grader.submission.choose import Submission

FILE: Final = "batch.sqlite"
FORMAT: Final = 1
State = Literal["new", "dead", "fetched", "graded", "done"]
#: Statuses of what is dead: the host has no such commit; nothing is known of it.
MISSING: Final = "missing"
NOT_FETCHED: Final = "not fetched"

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS submissions (
    id INTEGER PRIMARY KEY,
    student TEXT NOT NULL, name TEXT NOT NULL, pasted TEXT NOT NULL, line INTEGER NOT NULL,
    url TEXT NOT NULL, ref TEXT NOT NULL, assignments TEXT NOT NULL,
    submitted TEXT, late TEXT NOT NULL, warnings TEXT NOT NULL,
    current INTEGER NOT NULL,   -- 1: the sheet still says so
    state TEXT NOT NULL,        -- new, dead, fetched, graded (not timed), done
    sha TEXT, status TEXT, note TEXT NOT NULL DEFAULT '', remarks TEXT NOT NULL DEFAULT '[]',
    seed INTEGER, kit TEXT, attempts INTEGER NOT NULL DEFAULT 0, seconds REAL,
    document TEXT,
    UNIQUE (student, url, ref, assignments)
);
CREATE TABLE IF NOT EXISTS files (
    submission INTEGER NOT NULL, path TEXT NOT NULL, content BLOB NOT NULL,
    PRIMARY KEY (submission, path)
);
-- What happened, never changed: fetched, dead, began, graded, timed, again.
CREATE TABLE IF NOT EXISTS events (
    at TEXT NOT NULL, submission INTEGER NOT NULL, event TEXT NOT NULL, detail TEXT NOT NULL
);
"""


#: In SQL, of a row that the sheet names once more: `excluded` is what the sheet says now.
_HANDED_IN_AGAIN: Final = (
    "(submissions.submitted IS NOT excluded.submitted OR submissions.pasted <> excluded.pasted)"
)
_FORGOTTEN: Final = {
    "state": "'new'",
    "sha": "NULL",
    "status": "NULL",
    "note": "''",
    "remarks": "'[]'",
    "document": "NULL",
    "attempts": "0",
}
_AGAIN: Final = ", ".join(
    f"{name} = CASE WHEN {_HANDED_IN_AGAIN} THEN {value} ELSE submissions.{name} END"
    for name, value in _FORGOTTEN.items()
)


@dataclass
class Row:
    """One submission as the database holds it. late: assignment → how long after the deadline.

    state: new, dead (not fetched), fetched, graded (its throughput was not measured yet), done.
    status: graded, timeout, error, missing (there is no such commit), not fetched (nothing is known
    of it: to be tried again); "" as long as nothing is known.
    remarks: what a person should know; note: why it was not graded in full.
    """

    id: int
    student: str
    name: str
    pasted: str
    line: int
    url: str
    ref: str
    assignments: tuple[str, ...]
    submitted: datetime | None
    late: dict[str, timedelta]
    warnings: list[str]
    state: State
    sha: str = ""
    status: str = ""
    note: str = ""
    remarks: list[str] = field(default_factory=list)
    seed: int = 0
    kit: str = ""
    attempts: int = 0
    seconds: float = 0.0
    document: dict[str, Any] | None = None


class Store:
    """Open (or make) the database in a folder; only one batch at a time may.

    Raises `CannotRun` while another batch runs in the folder, or when it was made otherwise.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = (folder / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise CannotRun(f"another batch is running in {folder}") from None
        try:
            self._database = sqlite3.connect(folder / FILE, isolation_level=None)
        except sqlite3.Error as error:
            self._lock.close()
            raise CannotRun(f"{folder / FILE} cannot be read: {error}") from None
        try:
            self._database.row_factory = sqlite3.Row
            self._check_format(folder / FILE)
            self._database.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;")
            self._database.executescript(f"{_SCHEMA}; PRAGMA user_version = {FORMAT};")
        except sqlite3.DatabaseError as error:
            self.close()
            raise CannotRun(f"{folder / FILE} cannot be read: {error}") from None
        except CannotRun:
            self.close()
            raise

    def _check_format(self, file: Path) -> None:
        """Raise `CannotRun` for a database that is not of this kind, before anything is changed."""
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        there = _columns(self._database)
        ours = sqlite3.connect(":memory:")
        with contextlib.closing(ours):
            ours.executescript(_SCHEMA)
            wanted = _columns(ours)
        # Those of the first kits have our tables and no number.
        if version not in (0, FORMAT) or (there and there != wanted):
            raise CannotRun(
                f"{file} was written by another version of the kit: go on with that one, or name "
                "another folder with --out"
            )

    def close(self) -> None:
        """Let go of the folder."""
        self._database.close()
        self._lock.close()

    def meta(self, key: str) -> str | None:
        """What was kept under a name."""
        found = self._database.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if found is None else str(found[0])

    def keep(self, key: str, value: str) -> None:
        """Keep it for the runs that follow."""
        self._database.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def take(self, submissions: Sequence[Submission]) -> None:
        """Make the database hold what the sheet says now; what was graded stays graded."""
        with self._transaction():
            self._database.execute("UPDATE submissions SET current = 0")
            for each in submissions:
                late = {key: value.total_seconds() for key, value in each.late.items()}
                values = {
                    "student": each.student,
                    "name": each.name,
                    "pasted": each.pasted,
                    "line": each.line,
                    "url": each.link.url,
                    "ref": each.link.ref,
                    "assignments": " ".join(each.late),
                    "submitted": None if each.time is None else each.time.isoformat(),
                    "late": json.dumps(late),
                    "warnings": json.dumps(each.warnings, ensure_ascii=False),
                }
                values = cleaned(values)
                names = ", ".join(values)
                marks = ", ".join(f":{name}" for name in values)
                changes = ", ".join(f"{name} = excluded.{name}" for name in values)
                # A branch may lead elsewhere when it is handed in again: what is graded is then
                # fetched anew. A commit stays what it is.
                again = "" if each.link.pinned else f", {_AGAIN}"
                self._database.execute(
                    f"INSERT INTO submissions ({names}, current, state) VALUES ({marks}, 1, 'new') "
                    "ON CONFLICT (student, url, ref, assignments) DO UPDATE SET "
                    f"{changes}, current = 1{again}",
                    values,
                )

    def rows(self, *states: State) -> list[Row]:
        """What the sheet names, in its order; of these states only. Those tried often come last."""
        found = [
            _row(row)
            for row in self._database.execute(
                "SELECT * FROM submissions WHERE current = 1 ORDER BY attempts, line, id"
            )
        ]
        return [row for row in found if not states or row.state in states]

    def row(self, submission: int) -> Row:
        """One of them."""
        return _row(
            self._database.execute(
                "SELECT * FROM submissions WHERE id = ?", (submission,)
            ).fetchone()
        )

    def fetched(
        self, submission: int, sha: str, files: Mapping[str, bytes], remarks: Sequence[str]
    ) -> None:
        """Its files are here; from now on nobody's push changes them."""
        with self._transaction():
            self._database.execute("DELETE FROM files WHERE submission = ?", (submission,))
            self._database.executemany(
                "INSERT INTO files VALUES (?, ?, ?)",
                [(submission, path, content) for path, content in files.items()],
            )
            self._set(
                submission, state="fetched", sha=sha, status="", note="",
                remarks=json.dumps(list(remarks), ensure_ascii=False),
            )  # fmt: skip
            self._happened(submission, "fetched", sha)

    def dead(self, submission: int, reason: str, missing: bool = False) -> None:
        """Nothing could be fetched; the next run tries again.

        missing: the host said that there is no such commit. A network that is broken later does
        not take that back.
        """
        known = not missing and self.row(submission).status == MISSING
        with self._transaction():
            if not known:
                status = MISSING if missing else NOT_FETCHED
                self._set(submission, state="dead", status=status, note=reason)
            self._happened(submission, "dead", reason)

    def missing(self) -> list[Row]:
        """All of which a host said that there is no such commit, also what counts no more."""
        found = self._database.execute(
            "SELECT * FROM submissions AS one WHERE state = 'dead' AND status = ? AND NOT EXISTS "
            "(SELECT 1 FROM submissions AS other WHERE other.sha IS NOT NULL AND other.student = "
            "one.student AND other.url = one.url AND other.ref = one.ref) ORDER BY id",
            (MISSING,),
        )
        return [_row(each) for each in found]

    def began(self, submission: int, part: str) -> None:
        """An examiner is about to grade it."""
        with self._transaction():
            self._database.execute(
                "UPDATE submissions SET attempts = attempts + 1 WHERE id = ?", (submission,)
            )
            self._happened(submission, "began", part)

    def graded(
        self,
        submission: int,
        *,
        state: State,
        status: str,
        note: str,
        document: Mapping[str, Any] | None,
        seed: int,
        kit: str,
        seconds: float,
    ) -> None:
        """What an examiner found."""
        before = self.row(submission)
        with self._transaction():
            self._set(
                submission, state=state, status=status, note=note, seed=seed, kit=kit,
                seconds=seconds + (before.seconds if before.state == "graded" else 0.0),
                document=None if document is None else json.dumps(document, ensure_ascii=False),
            )  # fmt: skip
            event = "timed" if before.state == "graded" else "graded"
            points = "" if document is None else f"{document['points']:g}"
            self._happened(submission, event, f"{status} {points}".strip())

    def again(self, submission: int) -> None:
        """Grade it once more, from the same files."""
        with self._transaction():
            self._set(submission, state="fetched", status="", note="", attempts=0)
            self._happened(submission, "again", "")

    def files(self, submission: int) -> dict[str, bytes]:
        """The student's files: path inside `assignments/` → content."""
        found = self._database.execute(
            "SELECT path, content FROM files WHERE submission = ? ORDER BY path", (submission,)
        )
        return {row["path"]: row["content"] for row in found}

    def events(self) -> list[tuple[int, str, str]]:
        """(submission, event, detail) of all that happened, in order."""
        found = self._database.execute("SELECT * FROM events ORDER BY rowid")
        return [(row["submission"], row["event"], row["detail"]) for row in found]

    def _transaction(self) -> _Transaction:
        return _Transaction(self._database)

    def _set(self, submission: int, **values: object) -> None:
        changes = ", ".join(f"{name} = :{name}" for name in values)
        self._database.execute(
            f"UPDATE submissions SET {changes} WHERE id = :id",
            {**cleaned(values), "id": submission},
        )

    def _happened(self, submission: int, event: str, detail: str) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._database.execute(
            "INSERT INTO events VALUES (?, ?, ?, ?)", (now, submission, event, clean(detail))
        )


def _columns(database: sqlite3.Connection) -> set[tuple[str, str]]:
    """(table, column) of all that is there."""
    tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return {
        (table[0], column[0])
        for table in tables
        for column in database.execute("SELECT name FROM pragma_table_info(?)", (table[0],))
    }


class _Transaction:
    """All or nothing."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def __enter__(self) -> None:
        self._database.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._database.execute("COMMIT" if kind is None else "ROLLBACK")


def _row(found: sqlite3.Row) -> Row:
    late = {key: timedelta(seconds=value) for key, value in json.loads(found["late"]).items()}
    return Row(
        id=found["id"],
        student=found["student"],
        name=found["name"],
        pasted=found["pasted"],
        line=found["line"],
        url=found["url"],
        ref=found["ref"],
        assignments=tuple(found["assignments"].split()),
        submitted=None
        if found["submitted"] is None
        else datetime.fromisoformat(found["submitted"]),
        late=late,
        warnings=json.loads(found["warnings"]),
        state=found["state"],
        sha=found["sha"] or "",
        status=found["status"] or "",
        note=found["note"],
        remarks=json.loads(found["remarks"]),
        seed=found["seed"] or 0,
        kit=found["kit"] or "",
        attempts=found["attempts"],
        seconds=found["seconds"] or 0.0,
        document=None if found["document"] is None else json.loads(found["document"]),
    )
