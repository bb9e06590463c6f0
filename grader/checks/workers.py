"""The one worker server of a run.

The command line starts it before pytest and torch are imported here, so that it imports torch
meanwhile; fixtures ask for it with `server()`, which starts it when nobody has.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from grader.harness import WorkerServer

# What the server imports before the first fork, so that no task waits for it.
DRIVERS = Path(__file__).parent / "drivers"
PRELOAD: tuple[str, ...] = (
    "grader.checks.entry",
    "grader.checks.real_entry",
    *(f"grader.checks.drivers.{file.stem}" for file in sorted(DRIVERS.glob("[a-z]*.py"))),
)

_server: WorkerServer | None = None


def start() -> None:
    """Start the server now; returns at once. Does nothing when it runs already."""
    global _server
    if _server is None:
        from grader.harness import WorkerServer

        _server = WorkerServer(preload=list(PRELOAD))


def running() -> bool:
    """Whether somebody has started the server."""
    return _server is not None


def server() -> WorkerServer:
    """The running server."""
    start()
    assert _server is not None
    return _server


def stop() -> None:
    """End the server; the next `server()` starts another."""
    global _server
    if _server is not None:
        _server.close()
        _server = None
