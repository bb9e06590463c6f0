"""How far something long has come, and how long it will take."""

from __future__ import annotations

import time
from collections.abc import Callable

from grader.report.language import text, translated
from grader.submission.store import Row


class Progress:
    """Says a line for each step: `12/60 graded, about 4 min left: ann: 45 of 100`."""

    def __init__(
        self, verb: str, total: int, say: Callable[[str], None], language: str = "en"
    ) -> None:
        self._verb = translated(language, verb)
        self._language = language
        self._total = total
        self._say = say
        self._done = 0
        self._begin = time.monotonic()

    def step(self, words: str) -> None:
        """One more is done."""
        self._done += 1
        left = self._total - self._done
        seconds = (time.monotonic() - self._begin) / self._done * left
        more = text(self._language, "left", time=duration(seconds, self._language)) if left else ""
        self._say(
            text(
                self._language,
                "step",
                done=self._done,
                total=self._total,
                verb=self._verb,
                left=more,
                words=words,
            )
        )


def duration(seconds: float, language: str = "en") -> str:
    """ "about 4 min", "about 2 h 5 min", "less than 1 min"."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return text(language, "in_no_time")
    hours, minutes = divmod(minutes, 60)
    if hours:
        return text(language, "in_hours", hours=hours, minutes=minutes)
    return text(language, "in_minutes", minutes=minutes)


def told(row: Row, language: str, *words: str) -> str:
    """ "ann: not fetched: …": what there is to say of somebody."""
    parts = [row.student, *(translated(language, each) for each in words)]
    return text(language, "colon").join(parts)


def in_words(row: Row, language: str) -> str:
    """What became of it, in one line."""
    if row.document is None:
        return told(row, language, row.status, row.note)
    points, most = (f"{row.document[key]:g}" for key in ("points", "max_points"))
    total = text(language, "of_most", points=points, most=most)
    if row.note:
        total += text(language, "brackets", words=translated(language, row.note))
    return told(row, language, total)
