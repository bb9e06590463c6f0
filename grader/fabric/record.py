"""What a run leaves behind: the operations that were posted and what each rank did, in order.

A `Record` is data only. It says nothing of time: a clock replays it on any cluster afterwards
(`grader.fabric.clock`), and a `Trace` reads bytes, rounds and peers from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

EventKind = Literal["compute", "post", "wait"]


class Location(NamedTuple):
    """A line of the user's source."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file.rsplit('/', 1)[-1]}:{self.line}"


@dataclass(slots=True)
class Operation:
    """One communication call of one rank.

    kind: "send", "recv", or the name of a collective ("all_reduce", "all_gather", …, "barrier").
    group: key of the process group; `Record.groups[group]` lists its global ranks in group order.
    peer: global rank of the other side of a send or receive (for a receive from any source, the
        rank that sent), the root of a rooted collective, else -1.
    nbytes: of a send or receive, the message; of a collective, the bytes this rank contributes
        (its whole input; for a root of scatter, the whole list).
    splits: all_to_all only: bytes that this rank sends to each group rank.
    batch: operations handed to one `batch_isend_irecv` share a number; -1 outside a batch.
    match: sends and receives that belong together, or all ranks' calls of one collective, share
        this number; -1 while unmatched.
    order_dependent: the outcome depended on host order (a receive from any source, a poll).
    """

    id: int
    rank: int
    kind: str
    group: int
    peer: int
    nbytes: int
    shape: tuple[int, ...]
    dtype: str
    device: str
    tag: int = 0
    batch: int = -1
    match: int = -1
    location: Location | None = None
    splits: tuple[int, ...] = ()
    order_dependent: bool = False


class Event(NamedTuple):
    """One step of a rank's program.

    kind: "compute" (flops, nbytes are set), "post" or "wait" (operation is set).
    region: false while the grader's own set-up runs on the rank; such steps are not counted.
    """

    kind: EventKind
    operation: int = -1
    flops: int = 0
    nbytes: int = 0
    location: Location | None = None
    region: bool = True


@dataclass(slots=True)
class Record:
    """A whole run.

    operations[i].id == i. events[r] is the program of global rank r, in order. A post of several
    operations in one batch is one "post" event for each, with equal `Operation.batch`.
    """

    world_size: int
    operations: list[Operation] = field(default_factory=list)
    events: list[list[Event]] = field(default_factory=list)
    groups: dict[int, tuple[int, ...]] = field(default_factory=dict)
    order_dependent: bool = False
