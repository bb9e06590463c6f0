"""The examiner's hand on a simulated cluster: data in, data and a trace out.

    outputs, trace = cluster.run("a1:broadcast", inputs_per_rank, task="a1.broadcast")

The student's code runs in a worker. Here its outcome is turned into what a check can judge, or
into the failure that says what went wrong.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from grader import tasks
from grader.checks import brokered, workers
from grader.checks.framework import (
    DOES_NOT_COMPILE,
    DOES_NOT_IMPORT,
    KILLS_OTHERS,
    CheckFailed,
    LimitExceeded,
    SolutionError,
    SolutionTimeout,
    Unimplemented,
)
from grader.checks.sameness import same as same
from grader.checks.settings import Settings
from grader.fabric.record_io import record_from_columns
from grader.fabric.trace import Trace
from grader.harness import Limits, Reply, call_in_process

#: kind of finding -> what is most likely behind it, in one line.
CAUSES = {
    "receive_buffer_read": "a buffer of irecv was used before its wait() returned",
    "send_buffer_changed": "the buffer was reused before the wait() of its isend returned",
    "buffers_overlap": "one buffer serves two operations that are in flight at once",
    "receive_not_waited": "a work handle was dropped without wait()",
    "message_not_received": "one side sends more often than the other receives, or elsewhere",
    "message_mismatch": (
        "sender and receiver do not mean the same tensor, or compute its size differently"
    ),
    "collective_mismatch": "the ranks took different branches",
    "non_contiguous": "a view with strides was passed on as it is",
    "forbidden_call": "the task is to be built from point-to-point calls",
}

#: Told of every run, before it is judged: (task, what `entry.simulated` returned of it). A report
#: keeps some of them to draw.
RUN_LISTENERS: list[Callable[[str, dict[str, Any]], None]] = []


@dataclass
class RankFailure:
    """An exception of one rank: full type name, message, where, and the traceback's user lines."""

    rank: int
    type: str
    message: str
    location: str
    traceback: str
    bases: tuple[str, ...] = ()


@dataclass
class Outcome:
    """What a run came to.

    outputs: what the driver returned, by rank (empty when ranks raised). errors: by rank.
    warnings: what the sanitizer noted without failing the run. confirm: called before anybody
    reads the trace, once; it raises CheckFailed when the trace does not hold.
    """

    outputs: list[Any]
    claimed: Trace
    errors: dict[int, RankFailure] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    confirm: Callable[[], None] | None = None

    @property
    def trace(self) -> Trace:
        """What was sent. Raises CheckFailed when it is not what a brokered world saw."""
        if self.confirm is not None:
            self.confirm()
            self.confirm = None
        return self.claimed

    def __iter__(self) -> Iterator[Any]:
        return iter((self.outputs, self.trace))


class SimulatedCluster:
    """Runs drivers on simulated ranks, each call in a fresh worker. The `cluster` fixture."""

    def __init__(
        self, settings: Settings, metrics: dict[str, Any], cache: str | None = None
    ) -> None:
        self._cache = cache
        self.seed = settings.seed
        self._settings = settings
        self._metrics = metrics

    def run(
        self,
        driver: str,
        inputs: Sequence[Any],
        *,
        task: str,
        allow: Sequence[str] | str | None = "p2p",
        p2p: Literal["gloo", "nccl"] = "gloo",
        schedules: int = 1,
        compute: bool = False,
        expect_errors: bool = False,
        nccl_hint: bool = False,
        time_limit: float = 5.0,
        wall_seconds: float = 12.0,
    ) -> Outcome:
        """Run `driver` ("a1:broadcast") on len(inputs) ranks.

        inputs: nested dicts, lists and tensors, one per rank. allow: what the student may call:
        "p2p" alone, further kinds ("store", "collectives"), or None for everything.
        schedules: how many orders of the ranks to try; all must give the same outputs.
        nccl_hint: also try NCCL's order of unbatched point-to-point calls, and warn if it hangs.
        time_limit: seconds that a rank may compute without communicating.

        Raises CheckFailed (or Unimplemented, SolutionError, SolutionTimeout) with the explanation
        when the run failed; with expect_errors exceptions of ranks are left to the caller.
        """
        payload = {
            "driver": driver,
            "folder": str(self._settings.folder),
            "cache": self._cache,
            "inputs": list(inputs),
            "seed": secrets.randbits(32),
            "schedules": [None, *range(1, schedules)],
            "p2p": p2p,
            "allow": [allow] if isinstance(allow, str) else allow and list(allow),
            "compute": compute,
            "time_limit": time_limit,
            "device": self._settings.device,
        }
        runs = self._call(payload, task, wall_seconds)
        for listener in RUN_LISTENERS:
            listener(task, runs[0])
        outcome = self._outcome(runs[0], task, expect_errors)
        for number, run in enumerate(runs[1:], start=1):
            other = self._outcome(run, task, expect_errors, trace=outcome.claimed)
            if not same(outcome.outputs, other.outputs):
                raise CheckFailed(
                    f"the result depends on the order in which ranks happen to run (order {number} "
                    f"gives another result than order 0)",
                    cause="a receive from any source, a poll, a buffer shared between steps, or "
                    "memory (torch.empty) that nothing was received into",
                )
        if nccl_hint and len(inputs) > 1 and not outcome.errors:
            self._hint(payload, task, wall_seconds, outcome)
        if outcome.warnings:
            self._metrics.setdefault("warnings", []).extend(outcome.warnings)
        if self._settings.brokered and 2 <= len(inputs) <= brokered.MAX_RANKS:
            if not outcome.errors:
                confirmation = brokered.Confirmation(payload, task, wall_seconds, self._metrics)
                outcome.confirm = partial(confirmation.check, outcome.outputs, outcome.claimed)
        return outcome

    def _call(self, payload: dict[str, Any], task: str, wall_seconds: float) -> list[Any]:
        target = "grader.checks.entry:simulated"
        if self._settings.in_process:
            reply = call_in_process(target, payload, debug=self._settings.debug)
        else:
            limits = Limits(wall_seconds=wall_seconds)
            reply = workers.server().call(target, payload, limits=limits)
        if not reply.ok:
            raise _not_ok(reply, task)
        runs = reply.value["runs"]
        self._metrics["worlds"] = self._metrics.get("worlds", 0) + len(runs)
        if reply.output.strip() and runs and (runs[-1]["findings"] or runs[-1]["errors"]):
            runs[-1]["output"] = reply.output
        return list(runs)

    def _outcome(
        self, run: dict[str, Any], task: str, expect_errors: bool, trace: Trace | None = None
    ) -> Outcome:
        errors = {e["rank"]: _failure(e) for e in run["errors"]}
        _unimplemented(errors, task)
        for finding in run["findings"]:
            if finding["kind"] == "exception" and expect_errors:
                continue
            raise _explained(finding, errors, run.get("output", ""))
        if trace is None:
            trace = Trace(record_from_columns(run["record"]))
        warnings = [warning["message"] for warning in run["warnings"]]
        return Outcome(run["outputs"], trace, errors, warnings)

    def _hint(
        self, payload: dict[str, Any], task: str, wall_seconds: float, outcome: Outcome
    ) -> None:
        runs = self._call(payload | {"p2p": "nccl", "schedules": [None]}, task, wall_seconds)
        for finding in runs[0]["findings"]:
            if finding["kind"] == "deadlock":
                outcome.warnings.append(f"on NCCL this would hang. {finding['message']}")


def _failure(error: dict[str, Any]) -> RankFailure:
    place = error["location"]
    location = f"{place[0].rsplit('/', 1)[-1]}:{place[1]}" if place else ""
    return RankFailure(
        error["rank"],
        error["type"],
        error["message"],
        location,
        error["traceback"],
        tuple(error["bases"]),
    )


def _unimplemented(errors: dict[int, RankFailure], task: str) -> None:
    for error in errors.values():
        if "NotImplementedError" not in (error.type, *error.bases):
            continue
        known = {each.id for each in tasks.TASKS}
        if error.message == task:
            raise Unimplemented(f"{task} is not implemented yet")
        if not error.message and error.type == "NotImplementedError":  # of one's own helper, say
            raise Unimplemented(f"{task} is not implemented yet ({error.location})")
        if error.message in known:
            raise Unimplemented(
                f"{task} calls {error.message} ({error.location}), which is not implemented yet"
            )


def _explained(finding: dict[str, Any], errors: dict[int, RankFailure], output: str) -> CheckFailed:
    kind, message = finding["kind"], finding["message"]
    if output:
        message += f"\nIt printed:\n{_tail(output)}"
    if kind == "no_progress":
        return SolutionTimeout(message, cause="a loop that never ends")
    if kind == "exception":
        first = next(iter(errors.values()))
        return SolutionError(message, cause=_cause_of(first))
    return CheckFailed(message, cause=CAUSES.get(kind))


def _cause_of(error: RankFailure) -> str | None:
    if error.type in ("SyntaxError", "IndentationError", "TabError"):
        return DOES_NOT_COMPILE
    if error.type in ("ImportError", "ModuleNotFoundError", "SolutionImportError"):
        return DOES_NOT_IMPORT
    if error.type == "SystemExit":
        return "code at module level, or the function, leaves the program"
    return None


def _not_ok(reply: Reply, task: str) -> CheckFailed | RuntimeError:
    tail = f"\nIt printed:\n{_tail(reply.output)}" if reply.output.strip() else ""
    if reply.status == "timeout":
        stacks = f"\n{_tail(reply.stacks)}" if reply.stacks else ""
        return SolutionTimeout(
            f"{task} did not end: {reply.detail}{stacks}{tail}",
            cause="a loop that never ends, perhaps inside native code",
        )
    if reply.status == "raised" and reply.error is not None:
        if reply.error.type.endswith(".EncodeError") and ": more than " in reply.error.message:
            # Only what it returned, or raised, can be as long: what drivers add is short.
            return LimitExceeded(f"{task} gave back what is too long: {reply.error.message}")
        return RuntimeError(f"{reply.error.type}: {reply.error.message}\n{reply.error.traceback}")
    if "server was killed" in reply.detail:
        return SolutionError(f"{task} ended its process: {reply.detail}{tail}", cause=KILLS_OTHERS)
    exceeded = reply.status in ("memory", "flood") or "the limit is" in reply.detail
    kind = LimitExceeded if exceeded else SolutionError
    return kind(f"{task} ended its process: {reply.detail}{tail}")


def _tail(text: str, lines: int = 12) -> str:
    kept = text.rstrip().splitlines()
    cut = ["…"] if len(kept) > lines else []
    return "\n".join(f"  {line[:200]}" for line in [*cut, *kept[-lines:]])
