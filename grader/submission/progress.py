"""How far something long has come, and how long it will take."""

from __future__ import annotations

import time
from collections.abc import Callable


class Progress:
    """Says a line for each step: `12/60 graded, about 4 min left: ann: 45 of 100`."""

    def __init__(self, verb: str, total: int, say: Callable[[str], None]) -> None:
        self._verb = verb
        self._total = total
        self._say = say
        self._done = 0
        self._begin = time.monotonic()

    def step(self, words: str) -> None:
        """One more is done."""
        self._done += 1
        left = self._total - self._done
        seconds = (time.monotonic() - self._begin) / self._done * left
        time_left = f", {duration(seconds)} left" if left else ""
        self._say(f"{self._done}/{self._total} {self._verb}{time_left}: {words}")


def duration(seconds: float) -> str:
    """ "about 4 min", "about 2 h 5 min", "less than 1 min"."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return "less than 1 min"
    hours, minutes = divmod(minutes, 60)
    return f"about {hours} h {minutes} min" if hours else f"about {minutes} min"
