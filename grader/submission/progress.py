"""How far something long has come, and how long it will take."""

from __future__ import annotations

import time
from collections.abc import Callable

from grader.report.language import text, translated


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
