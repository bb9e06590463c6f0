"""The examiner's side of one call: feed it, watch it, end it, say what came of it."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

from grader.harness import frames, processes
from grader.harness.directories import remove_directory
from grader.harness.events import step
from grader.harness.reply import Limits, OutputTail, Reply, Status, exit_words
from grader.harness.result import Refused, ResultReader
from grader.harness.sandbox import Running
from grader.harness.worker import EXIT_NO_CHANNEL

_LOOK_SECONDS: Final = 0.03
_LONGEST_PAUSE_SECONDS: Final = 0.5
_STACKS_SECONDS: Final = 0.25
_STACKS_SECONDS_MEMORY: Final = 0.1
_STACKS_QUIET_SECONDS: Final = 0.03
_SILENCE_SECONDS: Final = 2.0
_END_SECONDS: Final = 30.0
_START_SECONDS: Final = 20.0
_CHUNK: Final = 1 << 18
_MAX_STACKS: Final = 256 << 10


class ServerLost(Exception):
    """The fork server ended, or no longer answers."""


class Call:
    """One call on a running server. ``run`` carries it out, once.

    A world steps through several at once on one selector instead: ``open`` each; hand events to
    their handlers and call ``tick`` until they are ``over``; ``close``. With ``hold`` the
    process stays after its result until ``release``. ``cores`` and ``extra_fds`` go to the
    process.
    """

    def __init__(
        self,
        control: Callable[[bytes, list[int]], None],
        base_directory: str,
        message: dict[str, Any],
        blob: bytes,
        limits: Limits,
        progress: Callable[[Any], None] | None,
        build: Callable[[str, dict[str, Any]], Any] | None,
        *,
        hold: bool = False,
        cores: list[int] | None = None,
        extra_fds: list[int] | None = None,
        sandbox: Running | None = None,
    ) -> None:
        self._request = control
        self._sandbox = sandbox
        self._base = base_directory
        self._limits = limits
        self._cpu_seconds = limits.cpu_seconds or 4 * limits.wall_seconds
        self._token = os.urandom(16).hex()
        self._hold = hold
        self._cores = cores
        self._extra_fds = extra_fds or []
        call = {**message, "token": self._token, "result_bytes": limits.result_bytes}
        call |= {"hold": hold}
        self._outgoing = [
            memoryview(part)
            for part in frames.pack({**call, "progress": progress is not None}, blob)
            if part
        ]
        self._result = ResultReader(self._token, limits.result_bytes, progress, build)
        self._output = OutputTail(limits.output_bytes)
        self._stacks = OutputTail(_MAX_STACKS)
        self._verdict: tuple[Status, str] | None = None
        self._exit: dict[str, Any] | None = None
        self._lost = False
        self.pid = 0
        self.looks = True
        """Whether memory and processes are looked at; not while something is timed."""

    # -- set-up and tear-down

    def run(self) -> Reply:
        """Carry the call out.

        Raises:
            ServerLost: the server was gone before the worker started: nothing has run.
        """
        with ExitStack() as stack:
            selector = stack.enter_context(selectors.PollSelector())
            self.open(stack, selector)
            while not self.over:
                step(selector, self.due)
                self.tick()
        return self.reply()

    def open(self, stack: ExitStack, selector: selectors.BaseSelector) -> None:
        """Ask for the process; ``stack`` ends it and removes what it leaves."""
        self._selector = selector
        directory = tempfile.mkdtemp(dir=self._base)
        stack.callback(remove_directory, directory)
        with ExitStack() as fds:
            self._open(fds, directory)
            stack.push(fds.pop_all())
        stack.callback(self._abandon)

    def _open(self, stack: ExitStack, directory: str) -> None:
        self._channel, call_end = socket.socketpair()
        self._status, status_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self._channel, self._status):
            stack.enter_context(end).setblocking(False)
        self._output_fd, output_end = os.pipe()
        self._stacks_fd, stacks_end = os.pipe()
        for fd in (self._output_fd, self._stacks_fd):
            stack.callback(os.close, fd)
            os.set_blocking(fd, False)
        try:
            request = {"directory": directory, "file_bytes": self._limits.file_bytes}
            request |= {"cores": self._cores}
            given_away = [call_end.fileno(), output_end, stacks_end, status_end.fileno()]
            self._request(json.dumps(request).encode(), given_away + self._extra_fds)
        finally:
            call_end.close()
            status_end.close()
            os.close(output_end)
            os.close(stacks_end)
        self._selector.register(self._status, selectors.EVENT_READ, self._on_status)
        self._selector.register(self._output_fd, selectors.EVENT_READ, self._on_output)
        self._selector.register(self._stacks_fd, selectors.EVENT_READ, self._on_stacks)
        self._selector.register(self._channel, selectors.EVENT_READ, self._on_channel)
        self._began = self._ended = time.monotonic()
        self._deadline = self._began + _START_SECONDS
        self._next_look = float("inf")
        self._stacks_asked = self._kill_sent = 0.0
        self._stacks_patience = _STACKS_SECONDS
        self._acknowledged = self._finished = False

    def _abandon(self) -> None:
        """An exception of ours ends the call: see its processes gone before their directory."""
        if self.pid and self._exit is None and not self._lost:
            self._command(b"kill")
        deadline = time.monotonic() + _SILENCE_SECONDS
        while self.pid and not self.over and time.monotonic() < deadline:
            for key, mask in self._selector.select(0.1):
                if key.fileobj is self._status:
                    key.data(mask)
        self._unregister()

    # -- the loop

    @property
    def over(self) -> bool:
        """Whether its processes are gone (or the server that would say so)."""
        return self._exit is not None or self._lost

    @property
    def due(self) -> float:
        """When ``tick`` has something to do even if nothing comes in, on the monotonic clock."""
        return min(self._deadline, self._next_look) if self.looks else self._deadline

    @property
    def started(self) -> bool:
        """Whether the process runs."""
        return self.pid != 0

    @property
    def verdict(self) -> Status | None:
        """How the call went, as soon as that is known."""
        return self._outcome()[0] if self._verdict is not None or self.over else None

    def tick(self) -> None:
        """Look at limits; when the call is over, collect what is left of it."""
        now = time.monotonic()
        if not self.over and now >= self._deadline:
            self._on_deadline(now)
        if self.looks and self._verdict is None and not self.over and now >= self._next_look:
            self._look(now)
        if self.over and not self._finished:
            self._finished = True
            self._ended = time.monotonic()
            self._drain()
            self._unregister()

    def _unregister(self) -> None:
        for fileobj in (self._channel, self._status, self._output_fd, self._stacks_fd):
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(fileobj)

    def stop(self, status: Status, detail: str) -> None:
        """End a call that has no verdict yet: its stacks first, then all its processes."""
        if self._verdict is None and not self.over:
            self._verdict = (status, detail)
            self._ask_stacks(_STACKS_SECONDS)

    def release(self) -> None:
        """End a process that is held after its result; no other."""
        if self.verdict == "ok" and not self._kill_sent and not self.over:
            self._kill(b"end")

    def _ask_stacks(self, seconds: float) -> None:
        self._next_look = float("inf")
        self._command(b"stacks")
        self._stacks_asked = time.monotonic()
        self._stacks_patience = seconds
        self._deadline = self._stacks_asked + seconds

    def _on_deadline(self, now: float) -> None:
        if not self.pid:
            raise ServerLost("it did not fork within its time")
        if self._kill_sent:
            if self._acknowledged and now < self._kill_sent + _END_SECONDS:
                self._deadline = self._kill_sent + _END_SECONDS
            else:  # stopped, perhaps by the student's code: whoever holds it will end it
                self._lost = True
        elif self._verdict is None:
            self.stop("timeout", f"no result within {self._limits.wall_seconds:g} seconds")
        else:
            self._kill()

    def _look(self, now: float) -> None:
        """Memory and number of processes of the whole tree."""
        members = processes.tree(self.pid)
        # Processes first: the memory of those that fork cannot be read while they do.
        if len(members) > self._limits.processes:
            words = f"{len(members)} processes at once; the limit is {self._limits.processes}"
            self._end("died", words)
            return
        used = processes.memory(members, self._limits.memory_bytes)
        if used > self._limits.memory_bytes:
            mib = 1 << 20
            words = f"{used // mib} MiB of memory; the limit is {self._limits.memory_bytes // mib}"
            self._verdict = ("memory", words + " MiB")
            self._ask_stacks(_STACKS_SECONDS_MEMORY)
        elif (spent := processes.cpu_seconds(members)) > self._cpu_seconds:
            words = f"{spent:.1f} s of CPU time; the limit is {self._cpu_seconds:g} s"
            self._end("died", words)
        elif self._sandbox is not None and (problem := self._sandbox.overfull()) is not None:
            self._end("died", problem)
        after = time.monotonic()
        # On a machine with many processes a look is dear: not more than a tenth of our time. But
        # it is also dear when a bomb goes off, and then the next must not be long in coming.
        pause = min(9 * (after - now), _LONGEST_PAUSE_SECONDS)
        self._next_look = after + max(_LOOK_SECONDS, pause)

    def _end(self, status: Status, detail: str) -> None:
        if self._verdict is None:
            self._verdict = (status, detail)
            self._kill()

    def _kill(self, command: bytes = b"kill") -> None:
        self._command(command)
        self._kill_sent = time.monotonic()
        self._deadline = self._kill_sent + _SILENCE_SECONDS
        self._next_look = float("inf")

    def _command(self, command: bytes) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._status.send(command)  # a server that is gone is seen on the same socket

    # -- what comes in

    def _on_status(self, mask: int) -> None:
        data = self._read(self._status.fileno())
        if data is None:
            return
        if not data:
            if not self.pid:
                raise ServerLost("it ended before the call began")
            self._lost = True
            return
        message = json.loads(data)
        if message["event"] == "started":
            self.pid = self._pid(message["pid"])
            self._began = time.monotonic()
            self._deadline = self._began + self._limits.wall_seconds
            self._next_look = self._began + _LOOK_SECONDS
            # Only now: code that runs before we know its process could not be held to a limit.
            both = selectors.EVENT_READ | selectors.EVENT_WRITE
            with contextlib.suppress(KeyError):  # the worker has died of itself
                self._selector.modify(self._channel, both, self._on_channel)
        elif message["event"] == "killing":
            self._acknowledged = True
        else:
            self._exit = message

    def _pid(self, told: Any) -> int:
        """The number that the server's child has here."""
        if self._sandbox is None:
            return int(told)
        pid = self._sandbox.locate(told)
        if not pid:
            raise ServerLost("its worker was gone before the call began")
        return pid

    def _read(self, fd: int) -> bytes | None:
        """What there is; empty at its end, None when there is nothing now."""
        try:
            return os.read(fd, _CHUNK)
        except BlockingIOError:
            return None
        except ConnectionResetError:
            # The other end closed before it read all of ours: told once, and before what it
            # sent itself, which is still there to be read.
            return os.read(fd, _CHUNK)

    def _on_output(self, mask: int) -> None:
        data = self._read(self._output_fd)
        if data == b"":
            self._selector.unregister(self._output_fd)
        elif data is not None:
            self._output.add(data)
            if self._output.total > self._limits.output_bytes:
                limit = self._limits.output_bytes
                self._selector.unregister(self._output_fd)  # from here on it waits for a reader
                self.stop("flood", f"more than {limit} bytes on stdout and stderr")

    def _on_stacks(self, mask: int) -> None:
        data = self._read(self._stacks_fd)
        if data == b"":
            self._selector.unregister(self._stacks_fd)
        elif data is not None:
            self._stacks.add(data)
            if self._stacks_asked and not self._kill_sent:
                latest = self._stacks_asked + self._stacks_patience
                self._deadline = min(latest, time.monotonic() + _STACKS_QUIET_SECONDS)

    def _on_channel(self, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._send_more()
        if mask & selectors.EVENT_READ:
            data = self._read(self._channel.fileno())
            if data == b"":
                self._selector.unregister(self._channel)
            elif data is not None:
                self._on_data(data)

    def _send_more(self) -> None:
        try:
            while self._outgoing:
                sent = self._channel.send(self._outgoing[0][: 1 << 20])
                self._outgoing[0] = self._outgoing[0][sent:]
                if not self._outgoing[0]:
                    del self._outgoing[0]
        except BlockingIOError:
            return
        except (BrokenPipeError, ConnectionResetError):
            self._outgoing.clear()  # its exit will say why
        self._selector.modify(self._channel, selectors.EVENT_READ, self._on_channel)

    def _on_data(self, data: bytes) -> None:
        if self._verdict is not None and self._verdict[0] not in ("ok", "raised"):
            return
        try:
            verdict = self._result.feed(data)
        except Refused as refused:
            self._verdict = None  # whatever came before
            self._end("died", str(refused))
            return
        if verdict is None:
            return
        self._verdict = verdict
        if self._hold and verdict[0] == "ok":
            self._deadline = self._next_look = float("inf")
        else:
            self._kill(b"end")

    # -- the end

    def _drain(self) -> None:
        """Read what is left in the pipes: nobody writes any more."""
        mapped = self._selector.get_map()
        for fileobj, handler in (
            (self._channel, self._on_channel),
            (self._output_fd, self._on_output),
            (self._stacks_fd, self._on_stacks),
        ):
            before = -1
            while fileobj in mapped and before != (before := self._seen()):
                handler(selectors.EVENT_READ)

    def _seen(self) -> int:
        return self._result.received + self._output.total + self._stacks.total

    def _outcome(self) -> tuple[Status, str]:
        if self._verdict is not None:
            return self._verdict
        if self._exit is None:
            return "died", "the worker server was killed during the call"
        if self._exit["status"] == EXIT_NO_CHANNEL << 8:
            return "died", "the code closed the harness's file descriptors: no result can be sent"
        return "died", exit_words(self._exit["status"])

    def reply(self) -> Reply:
        """What the call came to."""
        status, detail = self._outcome()
        usage = self._exit or {}
        return Reply(
            status=status,
            value=self._result.value,
            error=self._result.error,
            detail=detail,
            output=self._output.text(),
            stacks=self._stacks.text(),
            seconds=self._ended - self._began,
            pid=self.pid,
            cpu_seconds=usage.get("cpu_seconds", 0.0),
            peak_rss_bytes=usage.get("peak_rss_bytes", 0),
        )

    @property
    def server_lost(self) -> bool:
        """Whether the server ended, or stopped answering, during the call."""
        return self._lost
