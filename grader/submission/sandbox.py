"""Whether submissions can be graded in a sandbox here (`grader check --sandbox`)."""

from __future__ import annotations

from typing import Final

from grader.harness.sandbox import unavailable

BROKERED: Final = True
"""Whether `grader check --sandbox --brokered` is there."""


def available() -> str | None:
    """`None` where a sandbox can be used; else why not, in one line."""
    return unavailable()
