"""A real world that is timed, one step at a time, on buffers and by a clock that are ours.

Its processes stand still except while a step is timed: they cannot prepare for inputs that they
have not been given, go on after they said that they were done, or disturb anybody else's turn.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final, Self

import torch

from grader.harness import clocks
from grader.harness.reply import Limits
from grader.harness.throughput_buffers import Buffers, Layout
from grader.harness.throughput_rank import DONE, LOAD, QUIT, RUN, STORE
from grader.harness.worlds import World, WorldFailed, WorldOptions, WorldReply

_TARGET: Final = "grader.harness.throughput_rank:serve"
_QUIT_SECONDS: Final = 5.0


@dataclass(frozen=True)
class Contender:
    """What is timed. prepare: "module:function" (see `throughput_rank.serve`).

    given: what each rank's `prepare` is given. allow: as `WorldOptions.allow`.
    """

    name: str
    prepare: str
    given: Sequence[Any]
    allow: str | None = None


@dataclass(frozen=True)
class Turn:
    """One timed step. seconds: by the examiner's clock. sent_nbytes: over the loopback device."""

    seconds: float
    sent_nbytes: int | None


class TimedWorld:
    """A world of `len(contender.given)` ranks with buffers of `layout`; a context manager.

    server: a running server (`WorkerServer.lend`). limits: wall_seconds bounds the start, and
    each step.
    """

    def __init__(
        self,
        server: Any,
        contender: Contender,
        layout: Layout,
        limits: Limits,
        options: WorldOptions,
    ) -> None:
        self.contender = contender
        self._limits = limits
        self._stack = ExitStack()
        self._lines: list[socket.socket] = []
        self._silent: set[int] = set()
        self.cuda = options.device == "cuda"
        with ExitStack() as building:
            self.buffers = [self._add_buffers(building, layout) for _ in contender.given]
            theirs = [self._add_line(building) for _ in contender.given]
            payloads = [
                {
                    "buffers": buffers.description,
                    "prepare": contender.prepare,
                    "given": given,
                }
                for buffers, given in zip(self.buffers, contender.given, strict=True)
            ]
            fds = [
                [line.fileno(), buffers.fd]
                for line, buffers in zip(theirs, self.buffers, strict=True)
            ]
            options = replace(options, allow=contender.allow, timed=True, extra_fds=fds)
            self.world = World(server, _TARGET, payloads, limits, options)
            building.callback(self.world.close)
            for end in theirs:
                end.close()
            self._stack = building.pop_all()
        for rank, line in enumerate(self._lines):
            self.world.selector.register(
                line, selectors.EVENT_READ, lambda mask, rank=rank: self._on_line(rank)
            )
        try:
            self._await(limits.wall_seconds)
            self._stop()
        except BaseException:
            self.close()
            raise

    def _add_buffers(self, stack: ExitStack, layout: Layout) -> Buffers:
        buffers = Buffers(layout)
        stack.callback(buffers.close)
        return buffers

    def _add_line(self, stack: ExitStack) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stack.callback(theirs.close)
        stack.enter_context(ours)
        ours.setblocking(False)
        self._lines.append(ours)
        self._silent.add(len(self._lines) - 1)
        return theirs

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
        """End the world; nothing is left of it."""
        self._stack.close()

    @property
    def tensors(self) -> list[dict[str, torch.Tensor]]:
        """The buffers by rank and name. To be used only between steps, and not after `close`."""
        return [buffers.tensors for buffers in self.buffers]

    # -- talking with the ranks

    def _on_line(self, rank: int) -> None:
        try:
            word = self._lines[rank].recv(16)
        except BlockingIOError:
            return
        except OSError:
            word = b""
        if word != DONE:  # closed, or something that we did not write: its exit will tell
            self.world.selector.unregister(self._lines[rank])
        else:
            self._silent.discard(rank)

    def _order(self, word: bytes) -> None:
        self._silent = set(range(len(self._lines)))
        for line in self._lines:
            try:
                line.send(word)
            except OSError:
                continue  # it is gone: seen below

    def _await(self, seconds: float) -> None:
        """Wait for all ranks' word. Raises `WorldFailed`."""
        self.world.deadline = time.monotonic() + seconds
        while self._silent:
            if self.world.failing or self.world.over or self.world.complete:
                self._fail()
            self.world.advance(float("inf"))
        self.world.deadline = float("inf")

    def _fail(self) -> None:
        """Let the world end and say how."""
        if self.world.complete:
            self.world.release()
        while not self.world.over:
            self.world.advance(float("inf"))
        reply = self.world.reply()
        if reply.ok:
            reply = replace(reply, status="died", detail="the ranks left before they were told to")
        raise WorldFailed(reply)

    def _stop(self) -> None:
        clocks.stop(self.world.pids)
        clocks.settle(self.world.pids)

    def _untimed(self, order: bytes) -> None:
        self._order(order)
        clocks.resume(self.world.pids)
        self._await(self._limits.wall_seconds)

    # -- what the examiner does

    def step(self, repeats: int = 1) -> Turn:
        """Run one step (or several in a row) on what the buffers hold and stop the world again.

        Raises `WorldFailed`; TimeoutError when it cannot be stopped.
        """
        pids = self.world.pids
        if self.cuda:
            self._untimed(LOAD)
            clocks.stop(pids)
            clocks.settle(pids)
        for call in self.world.calls:
            call.looks = False
        before = clocks.loopback_nbytes(pids[0])
        # The order waits in the lines: nobody reads it before the clock runs.
        self._order(RUN + str(repeats).encode())
        began = clocks.now()
        clocks.resume(pids)
        self._await(self._limits.wall_seconds)
        ended = clocks.stop(pids)
        clocks.settle(pids)
        after = clocks.loopback_nbytes(pids[0])
        for call in self.world.calls:
            call.looks = True
        if self.cuda:
            self._untimed(STORE)
            self._stop()
        sent = None if before is None or after is None else after - before
        return Turn(ended - began, sent)

    def finish(self) -> WorldReply:
        """Let the ranks return; their values say what they found replaced."""
        self._order(QUIT)
        clocks.resume(self.world.pids)
        self.world.deadline = time.monotonic() + _QUIT_SECONDS
        while not self.world.over:
            self.world.advance(float("inf"))
            if self.world.complete:
                self.world.release()
        return self.world.reply()
