"""Pages of a batch: everybody, each student, the fastest, what a person should look at."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from grader import tasks
from grader.report.files import write_atomically
from grader.report.language import text, translated
from grader.report.page import render
from grader.submission.choose import Unread
from grader.submission.grades import StudentGrade, tasks_of, words
from grader.submission.spreadsheets import fixed, write_csv
from grader.submission.suspicions import REFERENCE, Suspicion

_PAGE = re.compile(r"[\w-]*-[0-9a-f]{8}\.html")


@dataclass(frozen=True)
class Place:
    """One line of a leaderboard: a ratio and its spread."""

    student: str
    ratio: float
    low: float
    high: float


def page_name(student: str) -> str:
    """A file name of letters and digits, another one for every student."""
    readable = re.sub(r"[^\w-]+", "_", student)[:40].strip("_")
    return f"{readable}-{hashlib.sha256(student.encode()).hexdigest()[:8]}.html"


def write_student(folder: Path, grade: StudentGrade, lang: str = "en") -> None:
    """The page that a student may be sent: nothing of anybody else, no suspicion, no seed."""
    page = render("student.html", grade=grade, lateness=words, lang=lang)
    write_atomically(folder / "students" / page_name(grade.student), page)


def remove_others(folder: Path, grades: Sequence[StudentGrade]) -> None:
    """Pages of people who are in the sheet no more; no other file is touched."""
    kept = {page_name(grade.student) for grade in grades}
    for page in (folder / "students").glob("*.html"):
        if page.name not in kept and _PAGE.fullmatch(page.name):
            page.unlink(missing_ok=True)


def write_overview(
    folder: Path,
    title: str,
    grades: Sequence[StudentGrade],
    unread: Sequence[Unread],
    selected: Sequence[tasks.Task],
    lang: str = "en",
) -> None:
    """`index.html`."""
    page = render(
        "batch.html",
        lang=lang,
        title=title,
        summary=summary(grades, lang),
        grades=[(grade, page_name(grade.student)) for grade in grades],
        keys=list(dict.fromkeys(task.id.partition(".")[0] for task in selected)),
        unread=unread,
    )
    write_atomically(folder / "index.html", page)


def summary(grades: Sequence[StudentGrade], lang: str) -> str:
    """ "60 students: 2 dead link, 58 graded"."""
    counts = sorted(Counter(grade.status for grade in grades).items())
    listed = text(lang, "comma").join(
        text(lang, "counted", count=count, status=translated(lang, status))
        for status, count in counts
    )
    return text(lang, "students", count=len(grades), listed=listed)


def leaderboard(grades: Sequence[StudentGrade]) -> list[tuple[str, str, list[Place]]]:
    """(task and check, baseline, places) of every check that was timed; the fastest first.

    A result that was wrong, or earned nothing, has no place.
    """
    boards: dict[tuple[str, str], list[Place]] = {}
    for grade in grades:
        for row in grade.rows:
            for task in tasks_of(row):
                for check in task["checks"]:
                    metrics = check["metrics"]
                    if check["points"] > 0 and "ratio" in metrics:
                        key = f"{task['task']}: {check['check']}", str(metrics.get("baseline", ""))
                        low = metrics.get("ratio_low", metrics["ratio"])
                        high = metrics.get("ratio_high", metrics["ratio"])
                        place = Place(grade.student, metrics["ratio"], low, high)
                        boards.setdefault(key, []).append(place)
    return [
        (title, baseline, sorted(places, key=lambda place: (-place.ratio, place.student)))
        for (title, baseline), places in boards.items()
    ]


def write_leaderboard(folder: Path, grades: Sequence[StudentGrade], lang: str = "en") -> None:
    """`leaderboard.html` and `leaderboard.csv`."""
    boards = leaderboard(grades)
    page = render("leaderboard.html", boards=boards, lang=lang)
    write_atomically(folder / "leaderboard.html", page)
    head = ["check", "baseline", "place", "student", "ratio", "low", "high"]
    lines = [
        [
            translated(lang, title),
            translated(lang, baseline),
            str(number),
            p.student,
            f"{p.ratio:g}",
            f"{p.low:g}",
            f"{p.high:g}",
        ]
        for title, baseline, places in boards
        for number, p in enumerate(places, start=1)
    ]
    write_csv(folder / "leaderboard.csv", head, lines, lang)


def write_suspicions(folder: Path, found: Sequence[Suspicion], lang: str = "en") -> None:
    """`suspicions.html` and `suspicions.csv`."""
    page = render("suspicions.html", found=found, lang=lang, reference=REFERENCE)
    write_atomically(folder / "suspicions.html", page)
    lines = [
        [
            fixed(lang, each.kind),
            ", ".join(translated(lang, s) if s == REFERENCE else s for s in each.students),
            translated(lang, each.where),
            text(lang, "semicolon").join(translated(lang, w) for w in each.what.split("; ")),
        ]
        for each in found
    ]
    write_csv(folder / "suspicions.csv", ["kind", "students", "where", "what"], lines, lang)
