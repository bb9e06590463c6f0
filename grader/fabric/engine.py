"""The engine of the simulated cluster: matching, strictness, recording.

It knows ranks, groups, operations and payloads, and neither threads, sockets nor
`torch.distributed`: whoever attaches ranks to it (threads here, sandboxed processes elsewhere)
posts operations, suspends a rank whose operation is not `done`, and hands out results.

Messages are matched when they are posted, never when they are waited for. Sends are rendezvous:
a send is done when its receive has been posted, as on NCCL.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from grader.fabric import collectives
from grader.fabric.collectives import CollectiveCall
from grader.fabric.findings import FindingRaised
from grader.fabric.record import Event, Operation, Record
from grader.fabric.words import collective_mismatch, describe, message_mismatch

P2PMode = Literal["gloo", "nccl"]


class Pending:
    """An operation in flight: what it was posted with, and what it will bring."""

    __slots__ = (
        "operation",
        "payload",
        "result",
        "call",
        "done",
        "active",
        "waited",
        "unit",
        "source",
        "by_torch",
    )

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self.payload: torch.Tensor | None = None  # of a send
        self.result: torch.Tensor | None = None  # of a receive
        self.call: CollectiveCall | None = None
        self.done = False
        self.active = True
        self.waited = False
        self.unit: _Unit | None = None
        self.source = -1  # group rank that sent, for a receive from any source
        self.by_torch = False  # posted by torch's own code, which leaves some of its calls unwaited

    def __str__(self) -> str:
        return describe(self.operation)


class _Unit:
    """What NCCL launches as one: a single call, or a whole batch (`p2p="nccl"` only)."""

    __slots__ = ("members", "closed")

    def __init__(self) -> None:
        self.members: list[Pending] = []
        self.closed = False


@dataclass(slots=True)
class _Collective:
    """One collective of a group while its ranks arrive."""

    kind: str
    arrived: dict[int, Pending]


class Engine:
    """Matches what ranks post and records it.

    on_done(pending) is called whenever an operation of any rank becomes done.
    """

    def __init__(
        self,
        world_size: int,
        on_done: Callable[[Pending], None],
        *,
        p2p: P2PMode = "gloo",
        allow: frozenset[str] | None = None,
    ) -> None:
        if p2p not in ("gloo", "nccl"):
            raise ValueError(f"p2p must be 'gloo' or 'nccl', got {p2p!r}")
        self.world_size = world_size
        self.p2p = p2p
        self.allow = allow
        self.record = Record(world_size, events=[[] for _ in range(world_size)])
        self.store: dict[str, bytes] = {}  # the keys and values that ranks share
        self.pending: list[dict[int, Pending]] = [{} for _ in range(world_size)]
        self._on_done = on_done
        self._groups: dict[tuple[str, tuple[int, ...]], int] = {}
        self._sends: dict[tuple[int, int, int, int], deque[Pending]] = {}
        self._receives: dict[tuple[int, int, int, int], deque[Pending]] = {}
        self._any_source: dict[tuple[int, int, int], deque[Pending]] = {}
        self._sequence: dict[tuple[int, int], int] = {}
        self._open: dict[tuple[int, int], _Collective] = {}
        self._units: dict[tuple[int, int], deque[_Unit]] = {}
        self._batch_unit: dict[tuple[int, int], _Unit] = {}
        self._batches = 0
        self._matches = 0
        self._any_source_posted = False

    # Groups -----------------------------------------------------------------------------------

    def group(self, name: str, ranks: Sequence[int]) -> int:
        """The key of the group `name` of these global ranks, in group order."""
        identity = (name, tuple(ranks))
        key = self._groups.get(identity)
        if key is None:
            key = self._groups[identity] = len(self._groups)
            self.record.groups[key] = identity[1]
        return key

    # Posting ----------------------------------------------------------------------------------

    def new_batch(self) -> int:
        """A number for the operations of one `batch_isend_irecv`."""
        self._batches += 1
        return self._batches

    def end_batch(self, rank: int) -> None:
        """The batch of `rank` is complete: its operations may start, all at once."""
        for key in [key for key in self._batch_unit if key[0] == rank]:
            unit = self._batch_unit.pop(key)
            unit.closed = True
            if self._units[key][0] is unit:
                self._activate(unit)
            self._retire(key)

    def post_send(self, operation: Operation, payload: torch.Tensor | None) -> Pending:
        """Post a send; payload is a snapshot that nobody else changes (`None` for meta data)."""
        pending = self._new(operation)
        pending.payload = payload
        self._start(pending)
        return pending

    def post_receive(self, operation: Operation) -> Pending:
        """Post a receive; `operation.peer == -1` takes a message from any source."""
        pending = self._new(operation)
        if operation.peer < 0:
            operation.order_dependent = self.record.order_dependent = True
            self._any_source_posted = True
        self._start(pending)
        return pending

    def post_collective(self, operation: Operation, call: CollectiveCall) -> Pending:
        """Post this rank's call of a collective; results are in `call.outputs` once done."""
        pending = self._new(operation)
        pending.call = call
        self._start(pending)
        return pending

    def waiting(self, pending: Pending, region: bool) -> None:
        """Note in the rank's program that it now waits for `pending`."""
        operation = pending.operation
        self.record.events[operation.rank].append(Event("wait", operation.id, 0, 0, None, region))

    def completed(self, pending: Pending) -> None:
        """The rank has waited for `pending` and taken its result."""
        operation = pending.operation
        pending.waited = True
        del self.pending[operation.rank][operation.id]
        pending.payload = pending.result = None
        if pending.call is not None:
            pending.call.outputs = []

    def settle(self) -> None:
        """At the end: complete what torch's own code left unwaited; the user is not to blame."""
        for pendings in self.pending:
            for pending in [p for p in pendings.values() if p.by_torch and p.done]:
                self.waiting(pending, region=False)
                self.completed(pending)

    def posted(self, operation: Operation, region: bool) -> None:
        """Note in the rank's program that it posted `operation`."""
        self.record.events[operation.rank].append(Event("post", operation.id, 0, 0, None, region))

    def _new(self, operation: Operation) -> Pending:
        operation.id = len(self.record.operations)
        self.record.operations.append(operation)
        pending = Pending(operation)
        self.pending[operation.rank][operation.id] = pending
        return pending

    # NCCL's order -----------------------------------------------------------------------------

    def _start(self, pending: Pending) -> None:
        if self.p2p == "gloo":
            self._match(pending)
            return
        operation = pending.operation
        key = (operation.rank, operation.group)
        queue = self._units.setdefault(key, deque())
        unit = self._batch_unit.get(key) if operation.batch >= 0 else None
        if unit is None:
            unit = _Unit()
            queue.append(unit)
            if operation.batch >= 0:
                self._batch_unit[key] = unit
            else:
                unit.closed = True
        unit.members.append(pending)
        pending.unit = unit
        pending.active = False
        if queue[0] is unit and unit.closed:
            self._activate(unit)
            self._retire(key)

    def _activate(self, unit: _Unit) -> None:
        for member in unit.members:
            if not member.active:
                member.active = True
                self._match(member)

    def _retire(self, key: tuple[int, int]) -> None:
        """Drop units that are done from the head of the queue and start the next one."""
        queue = self._units[key]
        while queue and queue[0].closed and all(member.done for member in queue[0].members):
            queue.popleft()
            if queue and queue[0].closed:
                self._activate(queue[0])

    def _finish(self, pending: Pending) -> None:
        pending.done = True
        self._on_done(pending)

    def _finish_all(self, members: Sequence[Pending]) -> None:
        for pending in members:
            self._finish(pending)
        if self.p2p == "nccl":
            for pending in members:
                self._retire((pending.operation.rank, pending.operation.group))

    # Matching ---------------------------------------------------------------------------------

    def _match(self, pending: Pending) -> None:
        kind = pending.operation.kind
        if kind == "send":
            self._match_send(pending)
        elif kind == "recv":
            self._match_receive(pending)
        else:
            self._join(pending)

    def _match_send(self, send: Pending) -> None:
        op = send.operation
        key = (op.group, op.rank, op.peer, op.tag)
        queue = self._receives.get(key)
        receive = queue[0] if queue else None
        if self._any_source_posted:
            anyone = self._any_source.get((op.group, op.peer, op.tag))
            if anyone and (receive is None or anyone[0].operation.id < receive.operation.id):
                receive, queue = anyone[0], anyone
        if receive is None or queue is None:
            self._sends.setdefault(key, deque()).append(send)
            return
        queue.popleft()
        self._pair(send, receive)

    def _match_receive(self, receive: Pending) -> None:
        op = receive.operation
        if op.peer >= 0:
            key = (op.group, op.peer, op.rank, op.tag)
            queue = self._sends.get(key)
            if queue:
                self._pair(queue.popleft(), receive)
            else:
                self._receives.setdefault(key, deque()).append(receive)
            return
        sources = [
            queue
            for source in self.record.groups[op.group]
            if (queue := self._sends.get((op.group, source, op.rank, op.tag)))
        ]
        if sources:
            oldest = min(sources, key=lambda queue: queue[0].operation.id)
            self._pair(oldest.popleft(), receive)
        else:
            key3 = (op.group, op.rank, op.tag)
            self._any_source.setdefault(key3, deque()).append(receive)

    def _pair(self, send: Pending, receive: Pending) -> None:
        sent, received = send.operation, receive.operation
        if (
            sent.nbytes != received.nbytes
            or sent.dtype != received.dtype
            or sent.device != received.device
        ):
            raise FindingRaised(message_mismatch(sent, received))
        if received.peer < 0:
            received.peer = sent.rank
        receive.source = sent.rank
        sent.match = received.match = self._matches
        self._matches += 1
        receive.result = send.payload
        self._finish_all((send, receive))

    def _join(self, pending: Pending) -> None:
        op, call = pending.operation, pending.call
        assert call is not None
        key = (op.group, op.rank)
        number = self._sequence.get(key, 0)
        self._sequence[key] = number + 1
        collective = self._open.setdefault((op.group, number), _Collective(op.kind, {}))
        for other in collective.arrived.values():
            assert other.call is not None
            difference = collectives.difference(other.call, call)
            if difference is not None:
                raise FindingRaised(collective_mismatch(other.operation, op, difference))
            break
        collective.arrived[op.rank] = pending
        ranks = self.record.groups[op.group]
        if len(collective.arrived) < len(ranks):
            return
        del self._open[op.group, number]
        members = [collective.arrived[rank] for rank in ranks]
        calls = [member.call for member in members if member.call is not None]
        problem = collectives.execute(calls)
        if problem is not None:
            a, b, text = problem
            raise FindingRaised(
                collective_mismatch(members[a].operation, members[b].operation, text)
            )
        for member in members:
            member.operation.match = self._matches
        self._matches += 1
        self._finish_all(members)

    # What is left -----------------------------------------------------------------------------

    def awaited_ranks(self, pending: Pending) -> list[int]:
        """Global ranks that must act before `pending` can be done."""
        op = pending.operation
        if not pending.active and pending.unit is not None:
            queue = self._units[op.rank, op.group]
            head = [member for member in queue[0].members if not member.done]
            if pending not in head:
                return sorted({rank for member in head for rank in self.awaited_ranks(member)})
        if op.kind in ("send", "recv"):
            if op.peer >= 0:
                return [op.peer]
            return [rank for rank in self.record.groups[op.group] if rank != op.rank]
        for collective in self._open.values():
            if collective.arrived.get(op.rank) is pending:
                ranks = self.record.groups[op.group]
                return [rank for rank in ranks if rank not in collective.arrived]
        return [rank for rank in self.record.groups[op.group] if rank != op.rank]

    def ahead_of(self, pending: Pending) -> Pending | None:
        """In NCCL's order: the unfinished earlier operation that `pending` stands behind."""
        if pending.active or pending.unit is None:
            return None
        queue = self._units[pending.operation.rank, pending.operation.group]
        for member in queue[0].members:
            if not member.done and member.unit is not pending.unit:
                return member
        return None

    def near_miss(self, pending: Pending) -> Operation | None:
        """A message that almost matches `pending`: same ranks, another tag or group."""
        op = pending.operation
        if op.kind not in ("send", "recv") or op.peer < 0:
            return None
        wanted = "recv" if op.kind == "send" else "send"
        for other in self.pending[op.peer].values():
            candidate = other.operation
            if candidate.kind == wanted and candidate.peer == op.rank and not other.done:
                return candidate
        return None
