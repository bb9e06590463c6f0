"""Waiting for events of several calls at once."""

from __future__ import annotations

import selectors
import time
from typing import Final

_LONGEST_WAIT: Final = 1.0


def step(selector: selectors.BaseSelector, due: float) -> None:
    """Wait for events, at most until ``due`` on the monotonic clock, and handle them."""
    for key, mask in selector.select(min(max(due - time.monotonic(), 0.0), _LONGEST_WAIT)):
        key.data(mask)
