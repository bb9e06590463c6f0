"""Falls over when there is nothing to shut down."""

from .harness import _undo
from .harness import shutdown as right

TASK = "a9.shutdown"
EXPECT = {"status": "failed", "check": "leaves the process", "cause": "called twice"}


def shutdown(error=None):
    if not _undo:
        raise RuntimeError("not initialized")
    right(error)
