"""Who brought a world down: the first cause among ranks of which several fail."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from typing import Final

from grader.harness.reply import Reply

_FUTEX: Final = {"x86_64": "202", "aarch64": "98"}.get(platform.machine(), "")
_SAMPLES: Final = 5
_SAMPLE_SECONDS: Final = 0.004

#: How torch says that it was another rank that went.
_OF_OTHERS: Final = (
    "connection closed by peer",
    "connection reset by peer",
    "broken pipe",
    "socket closed",
    "timed out waiting",
    "remote process exited",
    "nccl communicator was aborted",
    "unhandled system error",
)


def is_waiting(pid: int) -> bool:
    """Whether the main thread of a process waits for another thread, as in a call of gloo.

    A loop, a sleep or a read is no such wait. Where the kernel does not say, whatever sleeps waits.
    """
    waits = 0
    for sample in range(_SAMPLES):
        if sample:
            time.sleep(_SAMPLE_SECONDS)
        waits += _waits_now(pid)
    return 2 * waits > _SAMPLES


def _waits_now(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/syscall", encoding="ascii") as file:
            words = file.read().split()
        if _FUTEX and words:
            return words[0] == _FUTEX
    except OSError:
        pass
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"S", b"D")
    except (OSError, IndexError):
        return False


def blamed(pids: Sequence[int]) -> list[int]:
    """Places in `pids` of those for whom the others wait; empty when all wait for each other."""
    alive = [place for place, pid in enumerate(pids) if os.path.exists(f"/proc/{pid}")]
    busy = [place for place in alive if not is_waiting(pids[place])]
    return busy if len(busy) < len(alive) or len(alive) == 1 else []


def follows_another(reply: Reply) -> bool:
    """Whether a rank failed because the connection to another one was gone."""
    if reply.status != "raised" or reply.error is None:
        return False
    message = reply.error.message.lower()
    return any(words in message for words in _OF_OTHERS)


def first_cause(replies: Sequence[Reply], order: Sequence[int]) -> int | None:
    """The rank whose failure came first and does not follow from another's.

    order: ranks in the order in which their verdicts came.
    """
    failed = [rank for rank in order if replies[rank].status not in ("ok", "stopped")]
    own = [rank for rank in failed if not follows_another(replies[rank])]
    return own[0] if own else failed[0] if failed else None
