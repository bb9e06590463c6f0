"""The examiner's hand on worlds of real processes: data in, data out.

    outputs = real_world.run("a1:collective", inputs_per_rank, task="a1.broadcast")

The drivers are those of the simulated cluster. Nothing is traced: a real world shows that the code
runs outside the simulator, and how fast.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import Any

import pytest

from grader import tasks
from grader.checks import workers
from grader.checks.framework import CheckFailed, SolutionError, SolutionTimeout, Unimplemented
from grader.checks.settings import Settings
from grader.harness import Limits, Reply
from grader.harness.binding import TooFewGpus
from grader.harness.worlds import WorldOptions
from grader.harness.worlds_reply import WorldReply

_STACK_LINES = 40
_KIT_FRAME = re.compile(r'\s*File "(?:[^"]*/grader/(?:harness|checks|fabric)/[^"]*|<frozen [^"]*)"')
_FORBIDDEN = "ForbiddenCall"


class RealWorld:
    """Runs drivers on real ranks, each call in fresh processes. The `real_world` fixture."""

    def __init__(
        self, settings: Settings, metrics: dict[str, Any], cache: str | None = None
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._cache = cache

    def run(
        self,
        driver: str,
        inputs: Sequence[Any],
        *,
        task: str,
        allow: str | None = "p2p",
        wall_seconds: float = 30.0,
    ) -> list[Any]:
        """Run `driver` on len(inputs) processes; returns its output by rank.

        allow: "p2p" refuses the student's code all collectives; None allows everything.
        wall_seconds: of the whole world, its start included.

        Raises CheckFailed (or Unimplemented, SolutionError, SolutionTimeout) with the explanation.
        Skips with --in-process, and on CUDA where there is no GPU.
        """
        if self._settings.in_process:
            pytest.skip("worlds of real processes are left out with --in-process")
        common = {
            "driver": driver,
            "folder": str(self._settings.folder),
            "cache": self._cache,
            "seed": secrets.randbits(32),
        }
        try:
            reply = workers.run_world(
                "grader.checks.real_entry:run",
                [{**common, "inputs": given} for given in inputs],
                limits=Limits(wall_seconds=wall_seconds),
                options=WorldOptions(device=self._settings.device, allow=allow),
            )
        except TooFewGpus as few:
            pytest.skip(str(few))
        self._metrics["real_worlds"] = self._metrics.get("real_worlds", 0) + 1
        if not reply.ok:
            raise world_failure(reply, task)
        return reply.values


def world_failure(reply: WorldReply, task: str) -> Exception:
    """What a world that failed says of the solution (or, if it was the kit's own code, of us)."""
    failed = reply.replies[reply.rank] if reply.rank is not None else None
    if failed is not None and failed.status == "raised" and failed.error is not None:
        return _raised(reply, failed, task)
    said = _tail(reply.output)
    printed = f"\nIt printed:\n{said}" if said else ""
    stacks = f"\nWhere each rank was:\n{_tail(own_frames(reply.stacks), _STACK_LINES)}"
    if reply.status == "timeout":
        cause = (
            "every rank waits for a message that nobody sends (a send whose handle was dropped "
            "before wait() may never leave)"
            if reply.rank is None
            else "a loop that never ends, or a rank that left the others waiting"
        )
        return SolutionTimeout(f"{task} did not end: {reply.detail}{printed}{stacks}", cause=cause)
    cause = _DEATHS.get(reply.status, "os._exit, sys.exit, a signal, or a crash in native code")
    return SolutionError(f"{task}: {reply.detail}{printed}{stacks}", cause=cause)


_DEATHS = {
    "memory": "something grows with every call or iteration",
    "flood": "a print inside a loop",
}


def _raised(reply: WorldReply, failed: Reply, task: str) -> Exception:
    error = failed.error
    assert error is not None
    if "NotImplementedError" in (error.type, *error.bases):
        if error.message == task:
            return Unimplemented(f"{task} is not implemented yet")
        if error.message in {each.id for each in tasks.TASKS}:
            return Unimplemented(f"{task} calls {error.message}, which is not implemented yet")
    if error.type.endswith(_FORBIDDEN):
        return CheckFailed(
            f"rank {reply.rank} {error.message}",
            cause="the task is to be built from point-to-point calls",
        )
    own = _tail(error.traceback, _STACK_LINES)
    return SolutionError(f"rank {reply.rank} raised {error.type}: {error.message}\n{own}")


def own_frames(stacks: str) -> str:
    """Stacks without the frames of the kit, which are at the bottom of every one."""
    return "\n".join(line for line in stacks.splitlines() if not _KIT_FRAME.match(line))


def _tail(text: str, lines: int = 12) -> str:
    kept = text.rstrip().splitlines()
    cut = ["…"] if len(kept) > lines else []
    return "\n".join(f"  {line[:200]}" for line in [*cut, *kept[-lines:]])
