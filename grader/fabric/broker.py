"""The engine with ranks as processes behind sockets: every message passes through here.

What arrives is the word of a process that nobody trusts: it is checked before it reaches the
engine, and a rank can act for no other. Only whether a call is the program's own or the grader's
(`Event.region`) is the rank's word; `whole` counts without it.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, cast

import torch

from grader.fabric import broker_wire as wire
from grader.fabric.broker_calls import Refused, group_ranks, integer, post_of, text
from grader.fabric.broker_store import BrokeredStore
from grader.fabric.diagnosis import deadlock, leftovers
from grader.fabric.engine import Engine, P2PMode, Pending
from grader.fabric.findings import Finding, FindingRaised
from grader.fabric.record import Record

_CHUNK: Final = 1 << 20
MAX_HELD_NBYTES: Final = 512 << 20
"""What messages that nobody has taken yet may hold, of all ranks together."""
MAX_OPERATIONS: Final = 200_000


def whole(record: Record) -> Record:
    """`record` with all that moved counted, whoever said that it was not the program's own."""
    events = [[event._replace(region=True) for event in program] for program in record.events]
    return replace(record, events=events)


@dataclass
class Seat:
    """A rank as the broker sees it; what `diagnosis` asks of a rank is here too.

    batches: the number of its open batch. noted: operations that it has waited for.
    held: bytes of each that it has not taken the
    result of.
    """

    rank: int
    channel: socket.socket
    status: Literal["running", "waiting", "sleeping", "done"] = "running"
    waits_for: Pending | None = None
    reader: wire.Reader = field(default_factory=wire.Reader)
    outgoing: bytearray = field(default_factory=bytearray)
    batches: set[int] = field(default_factory=set)
    noted: set[int] = field(default_factory=set)
    held: dict[int, int] = field(default_factory=dict)
    closed: bool = False


class Broker:
    """One world. channels: a socket to each rank's process; they are closed by `close`.

    Register it with a selector, whose keys' data are handlers (mask) -> None; call `tick` now and
    then. It is over when every rank has ended or gone. findings: what was wrong, the first first.
    """

    def __init__(
        self,
        channels: list[socket.socket],
        *,
        p2p: P2PMode = "gloo",
        allow: frozenset[str] | None = None,
    ) -> None:
        self.engine = Engine(len(channels), self._on_done, p2p=p2p, allow=allow)
        self.findings: list[Finding] = []
        self.seats = [Seat(rank, channel) for rank, channel in enumerate(channels)]
        self._store = BrokeredStore()
        self._selector: selectors.BaseSelector | None = None
        self._aborted = False
        self._commands: dict[str, Callable[[Seat, wire.Message, list[torch.Tensor]], None]] = {
            "group": self._group,
            "post": self._post,
            "wait": self._wait,
            "note": self._late_note,
            "look": self._look,
            "batch": self._batch,
            "end_batch": self._end_batch,
            "store": self._use_store,
            "finding": self._finding,
            "end": self._end,
        }
        for channel in channels:
            channel.setblocking(False)

    @property
    def record(self) -> Record:
        """What passed through here."""
        return self.engine.record

    @property
    def over(self) -> bool:
        """Whether no rank will say anything more."""
        return all(seat.closed or seat.status == "done" for seat in self.seats)

    def register(self, selector: selectors.BaseSelector) -> None:
        """Be called when something comes in."""
        self._selector = selector
        for seat in self.seats:
            selector.register(seat.channel, selectors.EVENT_READ, self._handler(seat))

    def close(self) -> None:
        """Let go of all ranks."""
        for seat in self.seats:
            self._leave(seat)
            seat.channel.close()

    def abort(self) -> None:
        """End the run: whoever waits is told, and whoever asks."""
        self._aborted = True
        for seat in self.seats:
            if seat.status in ("waiting", "sleeping"):
                self._reply(seat, {})

    def tick(self, now: float) -> None:
        """Answer ranks whose waits in the store have run out."""
        for rank, answer in self._store.expired(now):
            self._resume(self.seats[rank], answer)

    def conclude(self) -> list[Finding]:
        """What is wrong with a run in which every rank has ended."""
        if not self.findings:
            self.findings += [f for f in leftovers(self.engine) if f.severity == "error"]
        return self.findings

    # -- sockets

    def _handler(self, seat: Seat) -> Callable[[int], None]:
        def handle(mask: int) -> None:
            if mask & selectors.EVENT_WRITE:
                self._flush(seat)
            if mask & ~selectors.EVENT_WRITE:
                self._receive(seat)

        return handle

    def _receive(self, seat: Seat) -> None:
        try:
            data = seat.channel.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._leave(seat)
            return
        try:
            for message, tensors in seat.reader.feed(data):
                self._handle(seat, message, tensors)
        except FindingRaised as raised:
            self._fail(raised.finding)
            self._reply(seat, {})
        except Exception as error:  # whatever a rank sends, it is the rank's own fault
            words = f"rank {seat.rank} sent what no rank sends: {type(error).__name__}: {error}"
            self._fail(Finding("exception", words[:2000], (seat.rank,)))
            self._leave(seat)
            with contextlib.suppress(OSError):
                seat.channel.shutdown(socket.SHUT_RDWR)
        self._see_whether_stuck()

    def _leave(self, seat: Seat) -> None:
        if seat.closed:
            return
        seat.closed = True
        if self._selector is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(seat.channel)

    def _reply(self, seat: Seat, message: wire.Message, tensors: Any = ()) -> None:
        seat.status, seat.waits_for = "running", None
        if seat.closed:
            return
        seat.outgoing += wire.pack({**message, "aborted": self._aborted}, tensors)
        self._flush(seat)

    def _flush(self, seat: Seat) -> None:
        if seat.closed:
            return
        try:
            while seat.outgoing:
                with memoryview(seat.outgoing) as view:
                    sent = seat.channel.send(view[:_CHUNK])
                del seat.outgoing[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._leave(seat)
            return
        if self._selector is not None:
            more = selectors.EVENT_WRITE if seat.outgoing else 0
            self._selector.modify(seat.channel, selectors.EVENT_READ | more, self._handler(seat))

    # -- what ranks ask for

    def _handle(self, seat: Seat, message: wire.Message, tensors: list[torch.Tensor]) -> None:
        if seat.status != "running" or seat.outgoing:
            raise Refused("it spoke before it was answered")
        command = self._commands.get(text(message, "do", 32))
        if command is None:
            raise Refused("it asked for what there is not")
        if self._aborted and message["do"] not in ("finding", "end"):
            self._reply(seat, {})
            return
        command(seat, message, tensors)

    def _group(self, seat: Seat, message: wire.Message, tensors: list[torch.Tensor]) -> None:
        name = text(message, "name", 500)
        ranks = group_ranks(message, self.engine.world_size, seat.rank)
        self._reply(seat, {"key": self.engine.group(name, ranks)})

    def _post(self, seat: Seat, message: wire.Message, tensors: list[torch.Tensor]) -> None:
        record = self.engine.record
        if len(record.operations) >= MAX_OPERATIONS:
            raise Refused(f"more than {MAX_OPERATIONS} operations")
        operation, call = post_of(message, tensors, seat.rank, record.groups, seat.batches)
        nbytes = sum(t.numel() * t.element_size() for t in tensors if not t.is_meta)
        if nbytes + sum(sum(each.held.values()) for each in self.seats) > MAX_HELD_NBYTES:
            raise Refused(f"more than {MAX_HELD_NBYTES} bytes of messages that nobody took")
        if call is not None:
            pending = self.engine.post_collective(operation, call)
        elif operation.kind == "send":
            pending = self.engine.post_send(operation, tensors[0])
        else:
            pending = self.engine.post_receive(operation)
        if operation.id in self.engine.pending[seat.rank]:
            seat.held[operation.id] = nbytes
        self.engine.posted(operation, message.get("region") is True)
        self._reply(seat, {"id": pending.operation.id})

    def _wait(self, seat: Seat, message: wire.Message, tensors: list[torch.Tensor]) -> None:
        pending = self.engine.pending[seat.rank].get(integer(message, "id", 0, MAX_OPERATIONS))
        if pending is None:
            raise Refused("it waits for what it has not posted, or twice")
        if message.get("note") is True:
            self._note(seat, message)
        seat.status, seat.waits_for = "waiting", pending
        if pending.done:
            self._deliver(seat, pending)

    def _late_note(self, seat: Seat, message: wire.Message, tensors: list[torch.Tensor]) -> None:
        self._note(seat, message)
        self._reply(seat, {})

    def _note(self, seat: Seat, message: wire.Message) -> None:
        """Its program waits, now, for an operation of its own."""
        number = integer(message, "id", 0, len(self.engine.record.operations) - 1)
        operation = self.engine.record.operations[number]
        if operation.rank != seat.rank or number in seat.noted:
            raise Refused("it waits for what it has not posted, or twice")
        seat.noted.add(number)
        region = message.get("region") is True
        self.engine.waiting(Pending(operation), region)

    def _deliver(self, seat: Seat, pending: Pending) -> None:
        results = [] if pending.result is None else [pending.result]
        if pending.call is not None:
            results = list(pending.call.outputs)
        source = pending.source
        seat.held.pop(pending.operation.id, None)
        self.engine.completed(pending)
        self._reply(seat, {"source": source}, results)

    def _on_done(self, pending: Pending) -> None:
        seat = self.seats[pending.operation.rank]
        if seat.waits_for is pending:
            self._deliver(seat, pending)

    def _look(self, seat: Seat, message: wire.Message, tensors: list[torch.Tensor]) -> None:
        self.engine.record.order_dependent = True
        done = [key for key, each in self.engine.pending[seat.rank].items() if each.done]
        self._reply(seat, {"done": done})

    def _batch(self, seat: Seat, message: wire.Message, tensors: list[torch.Tensor]) -> None:
        number = self.engine.new_batch()
        seat.batches = {number}
        self._reply(seat, {"batch": number})

    def _end_batch(self, seat: Seat, message: wire.Message, tensors: list[torch.Tensor]) -> None:
        seat.batches = set()
        self.engine.end_batch(seat.rank)
        self._reply(seat, {})

    def _use_store(self, seat: Seat, message: wire.Message, tensors: list[torch.Tensor]) -> None:
        answer = self._store.use(seat.rank, message)
        if answer is None:
            seat.status = "sleeping"
        else:
            self._reply(seat, answer)
        for rank, late in self._store.answered():
            self._resume(self.seats[rank], late)

    def _resume(self, seat: Seat, answer: wire.Message) -> None:
        if seat.status == "sleeping":
            self._reply(seat, answer)

    def _finding(self, seat: Seat, message: wire.Message, tensors: list[torch.Tensor]) -> None:
        kind, words = text(message, "kind", 64), text(message, "message", 8000)
        self._fail(Finding(kind, words, (seat.rank,)))
        self._reply(seat, {})

    def _end(self, seat: Seat, message: wire.Message, tensors: list[torch.Tensor]) -> None:
        self._reply(seat, {})
        seat.status = "done"

    # -- faults

    def _fail(self, finding: Finding) -> None:
        self.findings.append(finding)
        self.abort()

    def _see_whether_stuck(self) -> None:
        alive = [seat for seat in self.seats if seat.status != "done"]
        if self._aborted or not alive or any(seat.closed for seat in alive):
            return  # of a process that has gone its call says more
        asleep = [seat for seat in alive if seat.status == "sleeping"]
        waiting = [seat for seat in alive if seat.status == "waiting"]
        if len(asleep) + len(waiting) < len(alive) or self._store.will_expire:
            return
        self._fail(deadlock(self.engine, cast(Any, self.seats)))
