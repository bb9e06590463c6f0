"""What a world came to, and whose doing it was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from grader.harness.reply import Reply, Status


@dataclass(frozen=True)
class WorldReply:
    """What a world came to.

    status: "ok" when every rank returned; else that of the rank that failed first.
    rank: that rank; None when ok, and when all ranks wait for each other.
    detail: one line that names it. replies: by rank. seconds: from the first fork to the end.
    """

    status: Status
    replies: tuple[Reply, ...]
    rank: int | None = None
    detail: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether every rank returned."""
        return self.status == "ok"

    @property
    def values(self) -> list[Any]:
        """What each rank returned."""
        return [reply.value for reply in self.replies]

    @property
    def stacks(self) -> str:
        """Where each rank was when the world ended, or why that cannot be said."""
        return "\n".join(
            f"rank {rank} ({reply.detail or reply.status}):\n{_where(reply)}"
            for rank, reply in enumerate(self.replies)
        )

    @property
    def output(self) -> str:
        """What the ranks printed; that of the one that failed first."""
        ranks = range(len(self.replies)) if self.rank is None else [self.rank]
        return "".join(self.replies[rank].output for rank in ranks)


class WorldFailed(RuntimeError):
    """A world ended while it was still needed; `reply` says how."""

    def __init__(self, reply: WorldReply) -> None:
        super().__init__(reply.detail)
        self.reply = reply


def _where(reply: Reply) -> str:
    if reply.stacks:
        return reply.stacks.rstrip()
    if reply.error is not None:
        return reply.error.traceback.rstrip()
    _, fatal, words = reply.output.rpartition("Fatal Python error")
    if fatal:
        return (fatal + words).rstrip()
    return "  it had returned" if reply.ok else "  its process was gone"
