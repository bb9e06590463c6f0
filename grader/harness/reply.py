"""What a call may use, and what it comes to."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Any, Final, Literal

from grader.harness import words
from grader.harness.errors import DecodeError

Status = Literal["ok", "raised", "died", "timeout", "memory", "flood", "stopped"]

_SIGNAL_WORDS: Final = {
    signal.SIGSEGV: "segmentation fault",
    signal.SIGBUS: "bus error",
    signal.SIGABRT: "aborted",
    signal.SIGFPE: "arithmetic error",
    signal.SIGILL: "illegal instruction",
    signal.SIGKILL: "killed from outside, perhaps for lack of memory",
    signal.SIGTERM: "asked to end",
}


@dataclass(frozen=True)
class Limits:
    """Bounds of one call. Sizes are bytes; memory and processes count the whole process tree.

    ``result_bytes`` bounds what the call sends back (result and progress together),
    ``file_bytes`` each file it writes, ``output_bytes`` its stdout and stderr together.
    ``cpu_seconds`` is the CPU time of the whole tree; ``None``: four times ``wall_seconds``.
    """

    wall_seconds: float = 10.0
    memory_bytes: int = 2 << 30
    output_bytes: int = 1 << 20
    processes: int = 32
    result_bytes: int = 256 << 20
    file_bytes: int = 1 << 30
    cpu_seconds: float | None = None


@dataclass(frozen=True)
class Frame:
    """One line of a traceback."""

    file: str
    line: int
    function: str


@dataclass(frozen=True)
class RaisedError:
    """An exception as data. ``type`` is its full name, without ``builtins.``.

    ``frames`` run from the outermost to where it was raised; ``bases`` are the full names of the
    classes it derives from, so that a subclass of NotImplementedError can be told.
    """

    type: str
    message: str
    traceback: str
    frames: tuple[Frame, ...] = ()
    bases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reply:
    """What a call came to.

    status: ``ok`` (``value`` is the result), ``raised`` (``error`` says what), ``died`` (it ended
        without a result), ``timeout`` (``stacks`` says where it was), ``memory`` or ``flood``
        (a limit of that name was passed), ``stopped`` (its world ended because of another rank).
    detail: one line in plain words; empty when ok.
    output: stdout and stderr, as text; the middle is left out where it was over its limit.
    seconds: wall time from the fork to the end of the process.
    cpu_seconds, peak_rss_bytes: of the worker and the children that it waited for.
    """

    status: Status
    value: Any = None
    error: RaisedError | None = None
    detail: str = ""
    output: str = ""
    stacks: str = ""
    seconds: float = 0.0
    pid: int = 0
    cpu_seconds: float = 0.0
    peak_rss_bytes: int = 0

    @property
    def ok(self) -> bool:
        """Whether there is a value."""
        return self.status == "ok"


class OutputTail:
    """The first and the last bytes of a stream; never more than ``limit`` in all."""

    def __init__(self, limit: int) -> None:
        self._half = max(limit // 2, 1)
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        """Take what came next."""
        self.total += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > self._half:
            del self._tail[: len(self._tail) - self._half]

    def text(self) -> str:
        """All of it, or head and tail with a line that says how much is left out."""
        missing = self.total - len(self._head) - len(self._tail)
        middle = f"\n[… {missing} bytes left out …]\n".encode() if missing else b""
        return bytes(self._head + middle + self._tail).decode("utf-8", errors="replace")


def exit_words(status: int) -> str:
    """Why a process ended, from its wait status, in plain words."""
    if not os.WIFSIGNALED(status):
        code = os.WEXITSTATUS(status)
        return f"the process left with os._exit({code}) or sys.exit before its result"
    number = os.WTERMSIG(status)
    try:
        known = signal.Signals(number)
    except ValueError:
        return f"killed by signal {number}"
    words = _SIGNAL_WORDS.get(known)
    return f"killed by {known.name}" + (f" ({words})" if words else "")


def raised_error(described: object) -> RaisedError:
    """An exception as the worker describes it.

    Raises:
        DecodeError: the description is malformed.
    """
    if type(described) is not dict:
        raise DecodeError("error: expected an object")
    kind, message, text = (described.get(name) for name in ("type", "message", "traceback"))
    steps, bases = described.get("frames"), described.get("bases")
    if type(kind) is not str or type(message) is not str or type(text) is not str:
        raise DecodeError("error: expected type, message and traceback as text")
    if type(bases) is not list or not all(type(base) is str for base in bases):
        raise DecodeError("error: expected the names of its bases")
    if type(steps) is not list:
        raise DecodeError("error: expected frames")
    for step in steps:
        if type(step) is not list or [type(item) for item in step] != [str, int, str]:
            raise DecodeError("error: expected frames of file, line and function")
    return RaisedError(
        words.name(kind),
        words.clipped(message),
        words.clipped(text),
        tuple(Frame(words.clean(file), line, words.clean(what)) for file, line, what in steps),
        tuple(words.names(bases)),
    )


def failure(status: str, error: RaisedError) -> tuple[Status, str]:
    """Status and detail of a call that ended with an exception."""
    line = f"{error.type}: {error.message}".splitlines()[0].rstrip(": ")[:500]
    if status == "raised":
        return "raised", line
    return "died", f"the code raised {error.type} (sys.exit or like it) before its result"
