"""What a person should look at. None of it costs anybody a point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from grader import tasks
from grader.submission.calls import unusual_in
from grader.submission.clone import NO_BRANCH
from grader.submission.grades import tasks_of
from grader.submission.similar import Pair, alike
from grader.submission.store import Row, Store

#: Stands for the kit's own solutions in comparisons.
REFERENCE: Final = "(the kit's reference)"
_MOST: Final = 400


@dataclass(frozen=True)
class Suspicion:
    """kind: "same commit", "alike", "unusual", "worlds", "history". students: one or two."""

    kind: str
    students: tuple[str, ...]
    where: str
    what: str


def suspicions(store: Store, rows: Sequence[Row], project: Path) -> list[Suspicion]:
    """Of all submissions that were fetched, the gravest kinds first."""
    fetched = [row for row in rows if row.sha]
    files: dict[str, dict[str, bytes]] = {}
    for row in fetched:
        files.setdefault(row.student, {}).update(store.files(row.id))
    stubs, solved = _kit(project / "assignments"), _kit(project / "reference")
    found = [*_worlds(fetched), *_same_commit(fetched)]
    found += _alike({**files, **({REFERENCE: solved} if solved else {})}, stubs)
    for student, own in files.items():
        # Whatever a file of the kit does in the same place is usual there.
        changed = {path: content for path, content in own.items() if content != stubs.get(path)}
        for path, listed in unusual_in(changed, stubs, solved).items():
            what = "; ".join(f"line {line}: {name}" for name, line in listed.items())
            found.append(Suspicion("unusual", (student,), path, what[:1000]))
    found += [
        Suspicion("history", (row.student,), row.sha, NO_BRANCH)
        for row in fetched
        if NO_BRANCH in row.remarks
    ]
    return found


def _kit(folder: Path) -> Mapping[str, bytes]:
    return {
        path: (folder / path).read_bytes()
        for path in tasks.student_files()
        if (folder / path).is_file()
    }


def _alike(files: Mapping[str, Mapping[str, bytes]], stubs: Mapping[str, bytes]) -> list[Suspicion]:
    """One line for two students, whatever number of files they share."""
    pairs: dict[tuple[str, str], list[Pair]] = {}
    for pair in alike(files, stubs):
        pairs.setdefault((pair.first, pair.second), []).append(pair)
    found = []
    for students, listed in list(pairs.items())[:_MOST]:
        shares = ", ".join(f"{100 * pair.share:.0f} %" for pair in listed)
        what = f"token sequences of the smaller file that are in both: {shares}"
        found.append(Suspicion("alike", students, ", ".join(pair.path for pair in listed), what))
    return found


def _same_commit(rows: Sequence[Row]) -> list[Suspicion]:
    by_sha: dict[str, list[str]] = {}
    for row in rows:
        students = by_sha.setdefault(row.sha, [])
        if row.student not in students:
            students.append(row.student)
    return [
        Suspicion("same commit", tuple(students), sha, "one commit, handed in by several")
        for sha, students in by_sha.items()
        if len(students) > 1
    ]


def _worlds(rows: Sequence[Row]) -> list[Suspicion]:
    """Checks that a solution passes in one world and not in another: what the checks noted."""
    found = []
    for row in rows:
        for task in tasks_of(row):
            for check in task["checks"]:
                noted = check["metrics"].get("suspicion")
                if noted:
                    where = f"{task['task']}: {check['check']}"
                    found.append(Suspicion("worlds", (row.student,), where, str(noted)[:1000]))
    return found
