"""What a replay found out: when everything happened in virtual time, and what follows from it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

from grader.fabric.cluster import Cluster
from grader.fabric.record import Location, Record

SegmentKind = Literal["compute", "wait"]
Interval = tuple[float, float]
#: A `Segment` as the simulation writes it: plain, for speed.
RawSegment = tuple[SegmentKind, float, float, int, Location | None]


class Segment(NamedTuple):
    """A stretch of one rank's time, in virtual seconds.

    kind: "compute", or "wait" while blocked in a wait for `operation`. A wait that found its
    operation complete leaves no segment. location: of the computation, or where `operation` was
    posted.
    """

    kind: SegmentKind
    begin: float
    end: float
    operation: int
    location: Location | None


@dataclass
class Timeline:
    """Virtual times of one run on one cluster, in seconds from its start.

    posted[i], begin[i], end[i]: when operation i was posted, its transfer took the first link (or
        the collective began), and it completed; NaN for what never happened. Both sides of a
        message have the same begin and end.
    finish[r]: when rank r ended its last counted step.
    makespan: the latest of all finishes and completions.
    link_busy[l]: seconds that link l of the cluster was occupied.
    complete: every rank came to its end and every operation completed. Otherwise the run was cut
        off: stuck[r] is the operation that rank r waits for, and the times reach as far as it got.
    order_dependent: the record's own mark: another order of the ranks may give another timeline.

    Only steps of the counted region take time or are part of anything here (see `replay`).
    """

    record: Record
    cluster: Cluster
    posted: list[float]
    begin: list[float]
    end: list[float]
    finish: list[float]
    makespan: float
    link_busy: list[float]
    complete: bool
    stuck: dict[int, int]
    order_dependent: bool
    raw_segments: list[list[RawSegment]] = field(repr=False)
    counted: bytearray = field(repr=False)

    def segments(self, rank: int) -> list[Segment]:
        """What `rank` did, in order; gaps are time after its end or of length zero."""
        operations = self.record.operations
        return [
            Segment(kind, begin, end, op, operations[op].location if kind == "wait" else location)
            for kind, begin, end, op, location in self.raw_segments[rank]
        ]

    def operations(self, rank: int) -> list[int]:
        """Counted operations of `rank` that completed, by posting time."""
        return self._by_rank[rank]

    def computing(self, rank: int) -> float:
        """Seconds in which `rank` computed."""
        return _length(self._computing(rank))

    def blocked(self, rank: int) -> float:
        """Seconds in which `rank` stood in a wait."""
        return sum(s[2] - s[1] for s in self.raw_segments[rank] if s[0] == "wait")

    def idle(self, rank: int) -> float:
        """Makespan minus computing: time blocked in waits and time after the rank's own end.

        The bubble of a rank, where there is no communication time.
        """
        return self.makespan - self.computing(rank)

    def communicating(self, rank: int) -> float:
        """Seconds in which at least one of the rank's own operations was in transfer.

        A transfer lasts from `begin` to `end`, so with the latency.
        """
        return _length(self._transfers(rank))

    def overlap(self, rank: int) -> float:
        """Seconds in which `rank` computed while one of its own operations was in transfer."""
        return _length(_intersection(self._computing(rank), self._transfers(rank)))

    def _computing(self, rank: int) -> list[Interval]:
        return _union((s[1], s[2]) for s in self.raw_segments[rank] if s[0] == "compute")

    def _transfers(self, rank: int) -> list[Interval]:
        return _union((self.begin[op], self.end[op]) for op in self._by_rank[rank])

    @cached_property
    def _by_rank(self) -> list[list[int]]:
        ranks: list[list[int]] = [[] for _ in range(self.record.world_size)]
        for events, mine in zip(self.record.events, ranks, strict=True):
            for kind, op, _, _, _, _ in events:
                if kind == "post" and self.counted[op] and not math.isnan(self.end[op]):
                    mine.append(op)
        return ranks


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same points as disjoint intervals in order."""
    merged: list[Interval] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            if end > merged[-1][1]:
                merged[-1] = (merged[-1][0], end)
        elif end > begin:
            merged.append((begin, end))
    return merged


def _intersection(a: list[Interval], b: list[Interval]) -> list[Interval]:
    """Points in both lists of disjoint, ordered intervals."""
    common: list[Interval] = []
    i = j = 0
    while i < len(a) and j < len(b):
        begin, end = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if begin < end:
            common.append((begin, end))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return common


def _length(intervals: list[Interval]) -> float:
    return sum(end - begin for begin, end in intervals)
