"""What the sanitizer has to say about a program."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from grader.fabric.record import Location

Severity = Literal["error", "warning"]

#: kind -> what it means, in one line. `Finding.kind` is always one of these.
KINDS = {
    "deadlock": "ranks wait for each other, or for a rank that has left",
    "receive_buffer_read": "a receive buffer was used before wait()",
    "send_buffer_changed": "a send buffer was changed before wait()",
    "buffers_overlap": "a buffer was handed to a second operation while the first was in flight",
    "receive_not_waited": "a receive or an asynchronous collective was never waited for",
    "send_not_waited": "a send was never waited for",
    "message_not_received": "a message was sent that nobody received",
    "message_mismatch": "sender and receiver disagree on size, dtype or device",
    "collective_mismatch": "ranks called different collectives, or one with different arguments",
    "non_contiguous": "a tensor that is not contiguous was handed to a communication call",
    "forbidden_call": "the task forbids this call",
    "exception": "a rank raised an exception",
    "no_progress": "a rank computed beyond the time limit without communicating",
}


@dataclass(slots=True)
class Finding:
    """One fault: its kind (a key of `KINDS`), the whole message, and where it happened.

    ranks: global ranks concerned, the most important first.
    locations: for each of them the line of the user's source, where one is known.
    details: plain data (sizes, peers, the cycle) for programs that read findings.
    """

    kind: str
    message: str
    ranks: tuple[int, ...] = ()
    locations: dict[int, Location] = field(default_factory=dict)
    severity: Severity = "error"
    details: dict[str, Any] = field(default_factory=dict)


class SimulationAborted(BaseException):
    """Raised inside a rank to unwind it once the run has ended. Not an `Exception` on purpose."""


class FindingRaised(SimulationAborted):
    """The rank that committed a fault is unwound with this."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


def size_text(nbytes: int) -> str:
    """`nbytes` for people: exact below 1 KiB, then KiB, MiB, GiB with one decimal."""
    if nbytes < 1024:
        return f"{nbytes} B"
    power = min((nbytes.bit_length() - 1) // 10, 3)
    return f"{nbytes / 1024**power:.1f} {('KiB', 'MiB', 'GiB')[power - 1]}"


def more_ranks(count: int) -> str:
    """ "1 more rank", "2 more ranks"."""
    return f"{count} more rank{'s' * (count != 1)}"


def at(location: Location | None) -> str:
    """ " at file:line", or nothing when the line is not known."""
    return f" at {location}" if location is not None else ""
