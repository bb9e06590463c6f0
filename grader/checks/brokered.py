"""Confirming what a simulated run claims, in a world whose every message passes through here.

On the simulated cluster the record of what was sent shares an interpreter with the student's code.
Here each rank is a process in a sandbox, and the record is made in this one.
"""

from __future__ import annotations

import os
import random
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from grader.checks import workers
from grader.checks.framework import CheckFailed
from grader.checks.sameness import same
from grader.fabric.broker import Broker, whole
from grader.fabric.trace import Trace
from grader.harness import Limits, Reply, WorkerServer
from grader.harness.call import Call
from grader.harness.codec import encode
from grader.harness.events import step

MAX_RANKS: Final = 8
"""Larger worlds are not confirmed."""
_TARGET: Final = "grader.checks.brokered_entry:run"
_PASSED_ON: Final = ("driver", "folder", "seed", "allow", "compute")
#: Drivers that also run steps of the solution that do not count. All others must leave nothing out.
_WITH_QUIET_STEPS: Final = ("a3:", "a8:", "a9")
_TICK_SECONDS: Final = 0.1
_START_SECONDS: Final = 10.0
DISAGREE: Final = "the worlds disagree"


@dataclass
class BrokeredRun:
    """What a brokered world came to. problem: why there are no outputs; empty if there are."""

    outputs: list[Any]
    trace: Trace
    problem: str = ""


@dataclass
class Confirmation:
    """A simulated run that can be repeated in a brokered world.

    payload: as `entry.simulated` took it.
    """

    payload: dict[str, Any]
    task: str
    wall_seconds: float
    metrics: dict[str, Any]

    def check(self, outputs: Sequence[Any], claimed: Trace) -> None:
        """Raises CheckFailed when the brokered world sees another run than the simulated one."""
        found = ""
        for _ in range(2):  # on a busy machine a rank may have been late
            run = run_brokered(self.payload, self.wall_seconds)
            self.metrics["brokered_worlds"] = self.metrics.get("brokered_worlds", 0) + 1
            found = run.problem or self._difference(outputs, claimed, run)
            if not found:
                return
        raise CheckFailed(
            f"{DISAGREE}: {self.task} on {len(outputs)} ranks does one thing on the simulated "
            f"cluster and another where every message passes through the examiner: {found}",
            cause="the code looks at where it runs, or touches the cluster's own record",
            metrics={"suspicion": f"{DISAGREE}: {found}"[:1000]},
        )

    def _difference(self, outputs: Sequence[Any], claimed: Trace, run: BrokeredRun) -> str:
        found = difference(claimed, run.trace)
        if found:
            return found
        simulated, seen = Trace(whole(claimed.record)), Trace(whole(run.trace.record))
        # What a rank calls the grader's own traffic is its word: it must be the same, and where
        # the driver sends nothing of its own, there must be none.
        found = difference(simulated, seen)
        if not found and not self.payload["driver"].startswith(_WITH_QUIET_STEPS):
            found = difference(run.trace, seen).replace("simulated", "counted")
        if found:
            return f"with all that moved, {found}"
        if self.payload["device"] != "cpu" or run.trace.order_dependent:
            return ""
        for rank, output in enumerate(outputs):
            if not same(output, run.outputs[rank]):
                return f"rank {rank}: another result"
        return ""


def difference(claimed: Trace, seen: Trace) -> str:
    """What differs in two traces of one program, in words; empty if nothing does."""
    numbers: list[tuple[str, list[int], list[int]]] = [
        ("bytes sent", claimed.bytes_sent, seen.bytes_sent),
        ("bytes received", claimed.bytes_received, seen.bytes_received),
        ("messages sent", claimed.messages_sent, seen.messages_sent),
        ("messages received", claimed.messages_received, seen.messages_received),
    ]
    for what, ours, theirs in numbers:
        for rank, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            if one != other:
                return f"rank {rank}: {what}: {one} simulated, {other} seen"
    if claimed.traffic != seen.traffic:
        return "messages go between other ranks"
    for rank, (kinds, others) in enumerate(zip(claimed.collectives, seen.collectives, strict=True)):
        if kinds != others:
            return f"rank {rank}: collectives: {dict(kinds)} simulated, {dict(others)} seen"
    # Where the order of arrival matters, rounds differ from run to run.
    dependent = claimed.order_dependent or seen.order_dependent
    if claimed.rounds != seen.rounds and not dependent:
        return f"rounds: {claimed.rounds} simulated, {seen.rounds} seen"
    return ""


def run_brokered(payload: dict[str, Any], wall_seconds: float) -> BrokeredRun:
    """Run the driver of `payload` (as `entry.simulated` takes it) with a process for each rank."""
    servers = workers.rank_servers()
    ranks = list(range(len(payload["inputs"])))
    # Ranks that share a sandbox could talk behind our back: which ones do is left to chance.
    seats = random.SystemRandom().sample(ranks, len(ranks))
    places = [servers[seat % len(servers)] for seat in seats]
    return _lent(places, [], lambda running: _run(running, payload, wall_seconds))


def _lent(
    servers: list[WorkerServer], running: list[Any], use: Callable[[list[Any]], BrokeredRun]
) -> BrokeredRun:
    if not servers:
        return use(running)

    def with_this(server: Any) -> BrokeredRun:
        server.ready()
        return _lent(servers[1:], [*running, server], use)

    return servers[0].lend(with_this)


def _run(running: list[Any], payload: dict[str, Any], wall_seconds: float) -> BrokeredRun:
    size = len(running)
    allow = payload["allow"]
    limits = Limits(wall_seconds=wall_seconds + _START_SECONDS)
    cores = sorted(os.sched_getaffinity(0))
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.PollSelector())
        pairs = [socket.socketpair() for _ in range(size)]
        theirs = [stack.enter_context(pair[1]) for pair in pairs]
        broker = Broker(
            [pair[0] for pair in pairs],
            p2p=payload["p2p"],
            allow=None if allow is None else frozenset(allow),
        )
        stack.callback(broker.close)
        broker.register(selector)
        calls = []
        for rank, server in enumerate(running):
            given = {name: payload[name] for name in _PASSED_ON}
            given |= {"rank": rank, "world_size": size, "inputs": payload["inputs"][rank]}
            tree, blob = encode(given, name="payload")
            call = Call(
                server.request,
                server.directory,
                {"target": _TARGET, "tree": tree, "given": []},
                blob,
                limits,
                None,
                None,
                cores=[cores[rank % len(cores)]],
                extra_fds=[theirs[rank].fileno()],
                sandbox=server.running,
            )
            calls.append(call)
            call.open(stack, selector)
        for end in theirs:
            end.close()
        _until_over(selector, broker, calls)
        replies = [call.reply() for call in calls]
        return _outcome(broker, replies)


def _until_over(selector: selectors.BaseSelector, broker: Broker, calls: list[Call]) -> None:
    while not all(call.over for call in calls):
        due = min(call.due for call in calls if not call.over)
        step(selector, min(due, time.monotonic() + _TICK_SECONDS))
        broker.tick(time.monotonic())
        for call in calls:
            call.tick()
        if any(call.verdict not in (None, "ok") for call in calls):
            broker.abort()
            for call in calls:
                call.stop("stopped", "ended with its world")


def _outcome(broker: Broker, replies: list[Reply]) -> BrokeredRun:
    problem = ""
    failed = [reply for reply in replies if reply.status not in ("ok", "stopped")]
    if broker.findings:
        problem = broker.findings[0].message
    elif failed:
        problem = f"rank {replies.index(failed[0])}: {failed[0].detail or failed[0].status}"
    elif findings := broker.conclude():
        problem = findings[0].message
    outputs = [_output(reply) for reply in replies]
    if not problem and not all(outputs):
        problem = "a rank ended before its program did"
    return BrokeredRun(
        [output.get("output") for output in outputs if output], Trace(broker.record), problem
    )


def _output(reply: Reply) -> dict[str, Any]:
    """What a rank's process returned, if it is what our own code there returns."""
    value = reply.value
    return value if type(value) is dict and "output" in value else {}
