"""Virtual time: a record replayed on a cluster, as a discrete-event simulation.

Only the record decides, never the order in which the host ran the ranks: every tie is broken by
(rank, position in that rank's program), and operation numbers serve as names alone.

Ranks. A computation takes max(FLOPs / rate, bytes / memory bandwidth). A post takes nothing. A
wait lasts until the operation completes. Steps outside the counted region (the grader's set-up)
take no time, and what both sides post there moves at no cost; they still wait for one another.

Messages. A send and its receive meet: the message is ready when both are posted, and completes
for both at once, when its last byte is there. It crosses the links of its path cut-through: with
aₖ its arrival at link k, bₖ = max(aₖ, link k free) is when the link takes it up, the link is busy
for n/bandwidthₖ from then on, aₖ₊₁ = bₖ, and the last byte leaves it at eₖ = max(bₖ +
n/bandwidthₖ, eₖ₋₁). Links serve messages first in, first out by arrival. After the last link comes
the latency α of the whole path, which occupies nothing: messages posted together share one α. An
empty message pays α only, and one from a device to itself nothing.

Collectives begin when all their ranks have posted and all ports they use are free (they stand in
the same queues as messages), and hold these ports for their closed form
(`clock_collectives.collective_seconds`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from heapq import heappop, heappush

from grader.fabric.clock_collectives import collective_seconds
from grader.fabric.clock_timeline import RawSegment, Timeline
from grader.fabric.cluster import Cluster
from grader.fabric.record import Event, Location, Operation, Record

__all__ = ["Timeline", "replay"]


def replay(record: Record, cluster: Cluster) -> Timeline:
    """The virtual times of `record` on `cluster`; rank r runs on device r.

    A record that was cut off (a deadlock, an exception) is replayed as far as it goes, and the
    timeline says so. Raises ValueError for more ranks than devices, and for a collective without
    a closed form.
    """
    if record.world_size > cluster.devices:
        raise ValueError(
            f"{record.world_size} ranks do not fit on {cluster.name}: {cluster.devices} devices"
        )
    run = _Replay(record, _Transfers(record, cluster), cluster)
    run.run()
    return run.timeline()


class _Transfers:
    """Everything that travels, numbered ("slots") in an order that does not depend on the host.

    slot_of[op] is the transfer of an operation, -1 if it was never matched. The other lists have
    one more entry at their end, which stands for that -1 and never becomes ready.
    sides: how many ranks must post before it is ready. members: their ranks.
    links: the path of a message, the ports that a collective holds; empty if none is needed.
    latency: of a message's path in seconds; 0 for a collective.
    calls: the operations of each collective, in group order.
    """

    def __init__(self, record: Record, cluster: Cluster) -> None:
        self.record, self.cluster = record, cluster
        self.members: list[tuple[int, ...]] = []
        self.nbytes: list[int] = []
        self.links: list[tuple[int, ...]] = []
        self.latency: list[float] = []
        self.calls: dict[int, list[Operation]] = {}
        self._seconds: dict[object, float] = {}
        slots: dict[int, int] = {}
        operations = record.operations
        # Senders and lowest ranks name a transfer: rank by rank, in the order of their programs.
        for events in record.events:
            for kind, op, _, _, _, _ in events:
                if kind != "post":
                    continue
                operation = operations[op]
                match = operation.match
                if match < 0 or operation.kind == "recv":
                    continue
                if match not in slots:
                    slots[match] = len(self.members)
                    self._add(operation)
                if operation.kind != "send":
                    self.calls.setdefault(slots[match], []).append(operation)
        self.slot_of = [slots.get(operation.match, -1) for operation in operations]
        for slot, calls in self.calls.items():
            position = {rank: i for i, rank in enumerate(self.members[slot])}
            calls.sort(key=lambda call, position=position: position[call.rank])  # type: ignore[misc]
        self.sides = [len(ranks) for ranks in self.members] + [1 << 62]
        self.members.append(())
        self.nbytes.append(0)
        self.links.append(())
        self.latency.append(0.0)

    def _add(self, operation: Operation) -> None:
        if operation.kind == "send":
            links, latency = self.cluster.path(operation.rank, operation.peer)
            self.members.append((operation.rank, operation.peer))
            self.links.append(links if operation.nbytes else ())
        else:
            members, latency = self.record.groups[operation.group], 0.0
            self.members.append(members)
            self.links.append(self.cluster.ports(members) if len(members) > 1 else ())
        self.nbytes.append(operation.nbytes)
        self.latency.append(latency)

    def seconds(self, slot: int) -> float:
        """How long the collective `slot` lasts."""
        calls = self.calls[slot]
        nbytes = tuple(call.nbytes for call in calls)
        splits = tuple(call.splits for call in calls)
        key = (calls[0].kind, calls[0].group, calls[0].peer, nbytes, splits)
        seconds = self._seconds.get(key)
        if seconds is None:
            kind, members, root = calls[0].kind, self.members[slot], calls[0].peer
            seconds = collective_seconds(kind, members, nbytes, self.cluster, root, splits)
            self._seconds[key] = seconds
        return seconds


class _Replay:
    """The state of the simulation. Times are seconds, lists are indexed by rank, slot or link.

    A slot's `end` is -1 until it is known, which is as soon as its last link has taken it up.
    """

    def __init__(self, record: Record, transfers: _Transfers, cluster: Cluster) -> None:
        world, slots = record.world_size, len(transfers.members)
        self.record, self.transfers, self.cluster = record, transfers, cluster
        self.bandwidths = cluster.link_bandwidths
        self.free = [0.0] * len(self.bandwidths)
        self.busy = [0.0] * len(self.bandwidths)
        self.missing = transfers.sides
        self.ready = [0.0] * slots
        self.counted = bytearray(slots)
        self.hop = [0] * slots
        self.last_byte = [0.0] * slots
        self.begin = [math.nan] * slots
        self.end = [-1.0] * slots
        self.posted = [math.nan] * len(record.operations)
        self.programs: list[Iterator[Event]] = [iter(events) for events in record.events]
        self.clocks = [0.0] * world
        self.finish = [0.0] * world
        self.segments: list[list[RawSegment]] = [[] for _ in range(world)]
        self.waiting: list[int | None] = [None] * world  # the slot that blocks a rank
        self.waits: list[tuple[int, Location | None, bool]] = [(-1, None, False)] * world
        self.runnable = list(range(world))
        self.completed: list[int] = []
        self.heap: list[tuple[float, int]] = []  # (arrival at the next link, slot)

    def run(self) -> None:
        """Until nothing moves any more.

        Ranks run ahead of the links: what they post is ready at or after the time of the last
        arrival served, so links still see arrivals in the order of virtual time, and it does not
        matter which rank runs first.
        """
        while self.runnable or self.heap:
            self._run_ranks()
            if self.heap and not self.completed:
                self._serve()
            self._wake()

    def _run_ranks(self) -> None:
        """Let every runnable rank go on until it must wait."""
        slot_of, links, latency = (
            self.transfers.slot_of,
            self.transfers.links,
            self.transfers.latency,
        )
        missing, ready, counted, end = self.missing, self.ready, self.counted, self.end
        posted, finish, runnable = self.posted, self.finish, self.runnable
        per_flop, per_byte = 1 / self.cluster.flops, 1 / self.cluster.memory_bandwidth
        while runnable:
            rank = runnable.pop()
            clock = self.clocks[rank]
            segments = self.segments[rank]
            for kind, op, flops, nbytes, location, region in self.programs[rank]:
                if kind == "post":
                    posted[op] = clock
                    slot = slot_of[op]
                    if clock > ready[slot]:
                        ready[slot] = clock
                    if region:
                        counted[slot] = 1
                    missing[slot] -= 1
                    if not missing[slot]:
                        if links[slot] and counted[slot]:
                            heappush(self.heap, (ready[slot], slot))
                        else:
                            self.begin[slot] = ready[slot]
                            end[slot] = ready[slot] + (latency[slot] if counted[slot] else 0.0)
                            self.completed.append(slot)
                elif kind == "wait":
                    done = end[slot_of[op]]
                    if done < 0:
                        self.waiting[rank] = slot_of[op]
                        self.waits[rank] = (op, location, region)
                        break
                    if done > clock:
                        if region:
                            segments.append(("wait", clock, done, op, location))
                        clock = done
                elif region:
                    done = clock + max(flops * per_flop, nbytes * per_byte)
                    if done > clock:
                        segments.append(("compute", clock, done, -1, location))
                        clock = done
                if region:
                    finish[rank] = clock
            self.clocks[rank] = clock

    def _serve(self) -> None:
        """The next arrival at a link: the link takes the message up, now or when it is free."""
        arrival, slot = heappop(self.heap)
        free, busy, path = self.free, self.busy, self.transfers.links[slot]
        if slot in self.transfers.calls:
            taken = max(arrival, max(free[link] for link in path))
            seconds = self.transfers.seconds(slot)
            for link in path:
                free[link] = taken + seconds
                busy[link] += seconds
            self.begin[slot] = taken
            self.end[slot] = taken + seconds
            self.completed.append(slot)
            return
        nbytes = self.transfers.nbytes[slot]
        for hop in range(self.hop[slot], len(path)):
            link = path[hop]
            taken = free[link]
            if taken < arrival:
                taken = arrival
            seconds = nbytes / self.bandwidths[link]
            free[link] = taken + seconds
            busy[link] += seconds
            if taken + seconds > self.last_byte[slot]:
                self.last_byte[slot] = taken + seconds
            if hop == 0:
                self.begin[slot] = taken
            if taken > arrival and hop + 1 < len(path):
                # It reaches the next link only then; others may get there first.
                self.hop[slot] = hop + 1
                heappush(self.heap, (taken, slot))
                return
        self.end[slot] = self.last_byte[slot] + self.transfers.latency[slot]
        self.completed.append(slot)

    def _wake(self) -> None:
        """Ranks that wait for what has completed go on at that time."""
        while self.completed:
            slot = self.completed.pop()
            done = self.end[slot]
            for rank in self.transfers.members[slot]:
                if self.waiting[rank] != slot:
                    continue
                self.waiting[rank] = None
                op, location, region = self.waits[rank]
                if done > self.clocks[rank]:
                    if region:
                        self.segments[rank].append(("wait", self.clocks[rank], done, op, location))
                    self.clocks[rank] = done
                if region:
                    self.finish[rank] = self.clocks[rank]
                self.runnable.append(rank)

    def timeline(self) -> Timeline:
        """What is known at the end."""
        slot_of, counted, never = self.transfers.slot_of, self.counted, math.nan
        done = [never if end < 0 else end for end in self.end]
        counted_ends = [end for slot, end in enumerate(self.end) if counted[slot]]
        posts = (op for op, time in enumerate(self.posted) if time == time)
        stuck = {r: self.waits[r][0] for r, slot in enumerate(self.waiting) if slot is not None}
        return Timeline(
            record=self.record,
            cluster=self.cluster,
            posted=self.posted,
            begin=[self.begin[slot] for slot in slot_of],
            end=[done[slot] for slot in slot_of],
            finish=self.finish,
            makespan=max([*self.finish, *counted_ends], default=0.0),
            link_busy=self.busy,
            complete=not stuck and all(self.end[slot_of[op]] >= 0 for op in posts),
            stuck=stuck,
            order_dependent=self.record.order_dependent,
            counted=bytearray(counted[slot] for slot in slot_of),
            raw_segments=self.segments,
        )
