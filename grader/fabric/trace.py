"""What a run sent: bytes, messages, rounds and peers, read from its record without any clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from grader.fabric.clock import Timeline, replay
from grader.fabric.clock_collectives import collective_bytes
from grader.fabric.cluster import Cluster
from grader.fabric.record import Event, Operation, Record

__all__ = ["TimedTrace", "Trace"]


class Trace:
    """Volume of a run. Lists are indexed by global rank, sizes are bytes.

    Only what was posted inside the counted region and found its partner counts. A message counts
    for the sender if its send, for the receiver if its receive was posted there.

    bytes_sent, bytes_received: messages, and what the ring, pairwise or tree algorithm behind
        each collective moves (`clock_collectives.collective_bytes`).
    messages_sent, messages_received, peers (ranks it sent to), traffic ((src, dst) -> bytes sent):
        messages only; of a collective nobody can tell.
    collectives: how often each kind was called.
    rounds: the largest depth. A message's depth is 1 + the largest depth that its sender had
        waited for when it posted: depths of messages it had received, and of collectives. A
        collective is one round for all its ranks, 1 + the largest depth any of them had waited
        for. Waiting for a send adds nothing.
    complete: every rank came to its end and every counted operation found its partner; rounds of
        a run that was cut off reach as far as it got.
    """

    def __init__(self, record: Record) -> None:
        world = record.world_size
        self.record = record
        self.order_dependent = record.order_dependent
        self.bytes_sent = [0] * world
        self.bytes_received = [0] * world
        self.messages_sent = [0] * world
        self.messages_received = [0] * world
        self.collectives: list[Counter[str]] = [Counter() for _ in range(world)]
        self.traffic: Counter[tuple[int, int]] = Counter()
        self.complete = True
        self._counted: list[list[Operation]] = [[] for _ in range(world)]
        self._sides: dict[int, list[Operation]] = {}
        for operation in record.operations:
            if operation.match >= 0:
                self._sides.setdefault(operation.match, []).append(operation)
        self._count()
        self.rounds = self._depths()

    @property
    def peers(self) -> list[set[int]]:
        """Ranks that each rank sent messages to."""
        peers: list[set[int]] = [set() for _ in self.bytes_sent]
        for src, dst in self.traffic:
            peers[src].add(dst)
        return peers

    @property
    def total_bytes(self) -> int:
        """Bytes sent by all ranks together."""
        return sum(self.bytes_sent)

    def operations(self, rank: int, *kinds: str) -> list[Operation]:
        """Counted operations of `rank` of these kinds (all, if none is named), as posted."""
        return [op for op in self._counted[rank] if not kinds or op.kind in kinds]

    def on(self, cluster: Cluster) -> TimedTrace:
        """The same run in virtual time on `cluster`. Raises as `replay` does."""
        return TimedTrace(self.record, replay(self.record, cluster))

    def _count(self) -> None:
        operations, moved = self.record.operations, {}
        for rank, events in enumerate(self.record.events):
            for event in events:
                if event.kind != "post" or not event.region:
                    continue
                operation = operations[event.operation]
                match = operation.match
                if match < 0:
                    self.complete = False
                    continue
                self._counted[rank].append(operation)
                if operation.kind == "send":
                    self.messages_sent[rank] += 1
                    self.bytes_sent[rank] += operation.nbytes
                    self.traffic[rank, operation.peer] += operation.nbytes
                elif operation.kind == "recv":
                    self.messages_received[rank] += 1
                    self.bytes_received[rank] += operation.nbytes
                else:
                    self.collectives[rank][operation.kind] += 1
                    if match not in moved:
                        moved[match] = self._moved(match)
                    sent, received = moved[match][rank]
                    self.bytes_sent[rank] += sent
                    self.bytes_received[rank] += received

    def _moved(self, match: int) -> dict[int, tuple[int, int]]:
        """Bytes sent and received in one collective, by global rank."""
        calls = {call.rank: call for call in self._sides[match]}
        first = self._sides[match][0]
        members = self.record.groups[first.group]
        sent, received = collective_bytes(
            first.kind,
            members,
            [calls[rank].nbytes for rank in members],
            first.peer,
            [calls[rank].splits for rank in members],
        )
        return dict(zip(members, zip(sent, received, strict=True), strict=True))

    def _depths(self) -> int:
        """Walk all programs until nobody can go on; the largest depth met."""
        record, operations = self.record, self.record.operations
        level = [0] * record.world_size  # the largest depth a rank has waited for
        depth: dict[int, int] = {}  # of a match, growing until all who make it have posted
        makers = {
            match: len(record.groups[sides[0].group]) if _is_collective(sides[0]) else 1
            for match, sides in self._sides.items()
        }
        programs: list[Iterator[Event]] = [iter(events) for events in record.events]
        blocked: dict[int, list[int]] = {}
        runnable = list(range(record.world_size))
        while runnable:
            rank = runnable.pop()
            for event in programs[rank]:
                if event.kind == "compute":
                    continue
                operation = operations[event.operation]
                match = operation.match
                if event.kind == "wait":
                    if operation.kind == "send" and match >= 0:
                        continue
                    if match < 0 or makers[match]:
                        blocked.setdefault(match, []).append(rank)
                        break
                    level[rank] = max(level[rank], depth[match])
                elif operation.kind != "recv" and match >= 0:
                    step = level[rank] + 1 if event.region else 0
                    depth[match] = max(depth.get(match, 0), step)
                    makers[match] -= 1
                    if not makers[match]:
                        for waiter in blocked.pop(match, ()):
                            level[waiter] = max(level[waiter], depth[match])
                            runnable.append(waiter)
        if blocked:
            self.complete = False
        return max(depth.values(), default=0)


class TimedTrace(Trace):
    """A trace with the clock of one cluster: everything of `Trace`, and virtual seconds."""

    def __init__(self, record: Record, timeline: Timeline) -> None:
        super().__init__(record)
        self.timeline = timeline
        self.complete = self.complete and timeline.complete

    @property
    def makespan(self) -> float:
        """Virtual seconds from the start to the last completion."""
        return self.timeline.makespan

    def overlap(self, rank: int) -> float:
        """`Timeline.overlap`."""
        return self.timeline.overlap(rank)

    def idle(self, rank: int) -> float:
        """`Timeline.idle`."""
        return self.timeline.idle(rank)


def _is_collective(operation: Operation) -> bool:
    return operation.kind not in ("send", "recv")
