"""Real worlds: N processes of the fork server that form one `torch.distributed` world.

    reply = run_world(server, "package.module:function", payloads, limits=Limits(wall_seconds=10))
    reply.values[rank], or reply.status, reply.rank and reply.detail say who failed, and how

Ranks meet through a FileStore in a directory that goes with the world: no ports. When one rank
fails, its world ends: stacks of all ranks first, then every process.
"""

from __future__ import annotations

import os
import selectors
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Final, Self

from grader.harness import watchdog
from grader.harness.binding import Device, Place, place_ranks
from grader.harness.call import Call, ServerLost
from grader.harness.client import WorkerServer
from grader.harness.devices import Machine, read_machine
from grader.harness.directories import remove_directory
from grader.harness.events import step
from grader.harness.reply import Limits, Reply, Status
from grader.harness.sandbox import Running
from grader.harness.worlds_reply import WorldFailed, WorldReply

_RANK_TARGET: Final = "grader.harness.worlds_rank:run"
_ATTRIBUTION_SECONDS: Final = 0.5
_BEYOND: Final = 60.0
_CUDA_NBYTES: Final = 8 << 30
"""Host memory that CUDA and its libraries take in each process, before any of the rank's own."""


@dataclass(frozen=True)
class Meeting:
    """How ranks find each other when they are not all here.

    world_size: of all machines; first: the rank of the first of ours; node: our number.
    store: the store as a rank is told (see `worlds_rank`).
    """

    world_size: int
    first: int
    node: int
    store: dict[str, Any]


@dataclass(frozen=True)
class WorldOptions:
    """How a world is made.

    device: "cpu" (gloo) or "cuda" (NCCL). allow: "p2p" refuses collectives to code that runs
    through `RealRank.call`; None allows all. timed: refuse to share GPUs. machine: this one.
    extra_fds: descriptors for each rank, which it finds from 5 on. meeting: see there.
    """

    device: Device = "cpu"
    allow: str | None = None
    timed: bool = False
    machine: Machine | None = None
    extra_fds: Sequence[Sequence[int]] = ()
    meeting: Meeting | None = None
    places: Sequence[Place] = field(default=())


class World:
    """A world that runs; a context manager that leaves nothing behind.

    `advance` lets it go on for a while; `run` until it has ended. `selector` may watch more, with
    a handler (mask) -> None as data.
    """

    def __init__(
        self,
        server: Any,
        target: str,
        payloads: Sequence[Any],
        limits: Limits,
        options: WorldOptions,
    ) -> None:
        self._limits = limits
        self.calls: list[Call] = []
        self._order: list[int] = []
        self._blamed: list[int] | None = None
        self._failed_at: float | None = None
        self._stopped = False
        with ExitStack() as stack:
            self.selector = stack.enter_context(selectors.PollSelector())
            directory = tempfile.mkdtemp(prefix="world-", dir=server.directory)
            stack.callback(remove_directory, directory)
            meeting = options.meeting or Meeting(
                len(payloads), 0, 0, {"kind": "file", "path": os.path.join(directory, "store")}
            )
            self.first = meeting.first
            self.places = list(options.places) or place_ranks(
                options.machine or read_machine(with_gpus=options.device == "cuda"),
                len(payloads),
                options.device,
                timed=options.timed,
            )
            self.began = time.monotonic()
            self.deadline = self.began + limits.wall_seconds
            self.calls = self._calls(
                server.request, directory, target, payloads, meeting, options, server.running
            )
            for call in self.calls:
                call.open(stack, self.selector)
            self._stack = stack.pop_all()

    def _calls(
        self,
        request: Callable[[bytes, list[int]], None],
        directory: str,
        target: str,
        payloads: Sequence[Any],
        meeting: Meeting,
        options: WorldOptions,
        sandbox: Running | None,
    ) -> list[Call]:
        from grader.harness.codec import encode

        # The world has the clock: a rank's own limit would only hide who was waited for.
        limits = replace(self._limits, wall_seconds=self._limits.wall_seconds + _BEYOND)
        if options.device == "cuda":
            limits = replace(limits, memory_bytes=limits.memory_bytes + _CUDA_NBYTES)
        calls = []
        for local_rank, payload in enumerate(payloads):
            place = self.places[local_rank]
            described = {
                "rank": meeting.first + local_rank,
                "world_size": meeting.world_size,
                "local_world_size": len(payloads),
                "node": meeting.node,
                "place": place.to_json(),
                "store": meeting.store,
                "allow": options.allow,
                "timed": options.timed,
                "timeout": limits.wall_seconds,
                "target": target,
                "payload": payload,
            }
            tree, blob = encode(described, name="payload")
            message = {"target": _RANK_TARGET, "tree": tree, "given": []}
            extra = list(options.extra_fds[local_rank]) if options.extra_fds else []
            calls.append(
                Call(
                    request,
                    directory,
                    message,
                    blob,
                    limits,
                    None,
                    None,
                    hold=True,
                    cores=list(place.cores),
                    extra_fds=extra,
                    sandbox=sandbox,
                )
            )
        return calls

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every process and remove every file of the world."""
        self._stack.close()

    # -- the loop

    @property
    def over(self) -> bool:
        """Whether all ranks are gone."""
        return all(call.over for call in self.calls)

    @property
    def failing(self) -> bool:
        """Whether a rank has failed: the world is about to end."""
        return any(call.verdict not in (None, "ok") for call in self.calls)

    @property
    def complete(self) -> bool:
        """Whether every rank has returned; they are held until `release`."""
        return all(call.verdict == "ok" for call in self.calls)

    @property
    def pids(self) -> list[int]:
        """Process of each rank; 0 before it is known."""
        return [call.pid for call in self.calls]

    def release(self) -> None:
        """Let ranks that have returned go."""
        for call in self.calls:
            call.release()

    def advance(self, until: float) -> None:
        """Wait for events until `until` on the monotonic clock at most, and handle them."""
        due = min([until, self._due(), *(call.due for call in self.calls if not call.over)])
        step(self.selector, due)
        for call in self.calls:
            call.tick()
        self._judge(time.monotonic())

    def _due(self) -> float:
        if self._stopped:
            return float("inf")
        if self._failed_at is not None:
            return self._failed_at + _ATTRIBUTION_SECONDS
        return self.deadline

    def _judge(self, now: float) -> None:
        for rank, call in enumerate(self.calls):
            if rank not in self._order and call.verdict is not None:
                self._order.append(rank)
        if self._stopped or self.over:
            return
        if self.failing:
            self._failed_at = self._failed_at or now
            replies = self._replies()
            cause = watchdog.first_cause(replies, self._order)
            # A rank that lost its peer is heard of before the peer whose end it was.
            certain = cause is not None and not watchdog.follows_another(replies[cause])
            if certain or now >= self._failed_at + _ATTRIBUTION_SECONDS:
                self.stop()
        elif now >= self.deadline:
            self._time_is_up()

    def _time_is_up(self) -> None:
        missing = [rank for rank, call in enumerate(self.calls) if call.verdict is None]
        if not missing:  # all returned, and nobody released them
            self.release()
            return
        places = watchdog.blamed([self.calls[rank].pid for rank in missing])
        self._blamed = [missing[place] for place in places]
        limit = f"no result within {self._limits.wall_seconds:g} seconds"
        for rank in missing:
            self.calls[rank].stop("timeout", limit)
        self.release()
        self._stopped = True

    def stop(self, detail: str = "ended with its world") -> None:
        """End the world: the stacks of all ranks, then all processes."""
        self._stopped = True
        for call in self.calls:
            call.stop("stopped", detail)
            call.release()

    def run(self) -> WorldReply:
        """Go on until the world has ended."""
        while not self.over:
            self.advance(float("inf"))
            if self.complete:
                self.release()
        return self.reply()

    # -- the end

    def _replies(self) -> list[Reply]:
        return [call.reply() for call in self.calls]

    def reply(self) -> WorldReply:
        """What the world has come to."""
        replies = tuple(self._replies())
        seconds = time.monotonic() - self.began
        cause = watchdog.first_cause(replies, self._order)
        if cause is None:
            status: Status = "ok" if all(reply.ok for reply in replies) else "stopped"
            detail = "" if status == "ok" else replies[0].detail
            return WorldReply(status, replies, None, detail, seconds)
        failure = replies[cause]
        if self._blamed is not None and failure.status == "timeout":
            return self._timeout(replies, seconds)
        detail = f"rank {self.first + cause}: {failure.detail}"
        return WorldReply(failure.status, replies, cause, detail, seconds)

    def _timeout(self, replies: tuple[Reply, ...], seconds: float) -> WorldReply:
        limit = f"within {self._limits.wall_seconds:g} seconds"
        late = [rank for rank, reply in enumerate(replies) if reply.status == "timeout"]
        if self._blamed:
            names = _names([self.first + rank for rank in self._blamed])
            detail = f"{names}: no result {limit}"
            if len(self._blamed) < len(late):
                detail += "; the others wait for a message"
            return WorldReply("timeout", replies, self._blamed[0], detail, seconds)
        names = _names([self.first + rank for rank in late])
        detail = f"{names}: no result {limit}, and all of them wait for a message"
        return WorldReply("timeout", replies, None, detail, seconds)


def _names(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"


def run_world(
    server: WorkerServer,
    target: str,
    payloads: Sequence[Any],
    *,
    limits: Limits | None = None,
    options: WorldOptions | None = None,
    watch: Callable[[World], None] | None = None,
) -> WorldReply:
    """Run `target` on each of `payloads` in a world of as many ranks.

    limits: of each rank; wall_seconds of the world, its start included.
    watch: is called after every event, and may `stop` the world.

    Raises EncodeError, WorkerServerError, TooFewGpus.
    """

    def attempt(running: Any) -> WorldReply:
        running.ready()
        with World(
            running, target, payloads, limits or Limits(), options or WorldOptions()
        ) as world:
            while not world.over:
                world.advance(float("inf") if watch is None else time.monotonic() + 0.1)
                if world.complete:
                    world.release()
                if watch is not None:
                    watch(world)
            if any(call.server_lost for call in world.calls):
                server.replace(running)
            return world.reply()

    return server.lend(attempt)


__all__ = [
    "Meeting",
    "ServerLost",
    "World",
    "WorldFailed",
    "WorldOptions",
    "WorldReply",
    "run_world",
]
