"""A record as columns: flat int64 tensors and one table of strings, and back.

So a worker hands its record to the examiner as safetensors and JSON, without pickle and without a
million small objects. The worker is not trusted: what comes back is checked in every index before
a `Record` is made of it, so that reading or replaying it can neither crash nor run on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Generic, TypeVar, cast

import torch

from grader.fabric.clock_collectives import COLLECTIVES
from grader.fabric.record import Event, EventKind, Location, Operation, Record

#: Kinds of events, by the number that stands for them.
EVENT_KINDS: tuple[EventKind, ...] = ("compute", "post", "wait")
OPERATION_KINDS = frozenset({"send", "recv"}) | COLLECTIVES
#: Larger worlds are refused, whatever a worker says.
MAX_WORLD_SIZE = 1 << 16

Columns = dict[str, Any]
T = TypeVar("T")


def record_to_columns(record: Record) -> Columns:
    """`record` as a dict of int64 tensors (one dimension), a list of strings and numbers.

    "strings": every text once; a column of texts holds numbers of this list. "x_offsets": where
    the values of row i lie in "x": offsets[i] … offsets[i+1].
    """
    strings = _Numbers[str]()
    places = _Numbers[Location]()
    operations, groups = record.operations, record.groups
    events = [event for program in record.events for event in program]
    columns: Columns = {
        "world_size": record.world_size,
        "order_dependent": record.order_dependent,
        "op_rank": _column(op.rank for op in operations),
        "op_kind": _column(strings[op.kind] for op in operations),
        "op_group": _column(op.group for op in operations),
        "op_peer": _column(op.peer for op in operations),
        "op_nbytes": _column(op.nbytes for op in operations),
        "op_dtype": _column(strings[op.dtype] for op in operations),
        "op_device": _column(strings[op.device] for op in operations),
        "op_tag": _column(op.tag for op in operations),
        "op_batch": _column(op.batch for op in operations),
        "op_match": _column(op.match for op in operations),
        "op_order_dependent": _column(op.order_dependent for op in operations),
        "op_location": _column(places.maybe(op.location) for op in operations),
        "event_kind": _column(EVENT_KINDS.index(event.kind) for event in events),
        "event_operation": _column(event.operation for event in events),
        "event_flops": _column(event.flops for event in events),
        "event_nbytes": _column(event.nbytes for event in events),
        "event_location": _column(places.maybe(event.location) for event in events),
        "event_region": _column(event.region for event in events),
        "program_offsets": _offsets(record.events),
        "group_key": _column(groups),
    }
    for name, rows in (
        ("op_shape", [op.shape for op in operations]),
        ("op_splits", [op.splits for op in operations]),
        ("group_ranks", list(groups.values())),
    ):
        columns[name] = _column(value for row in rows for value in row)
        columns[f"{name}_offsets"] = _offsets(rows)
    columns["place_file"] = _column(strings[place.file] for place in places)
    columns["place_line"] = _column(place.line for place in places)
    columns["place_function"] = _column(strings[place.function] for place in places)
    columns["strings"] = list(strings)
    return columns


def record_from_columns(columns: Mapping[str, Any]) -> Record:
    """The record that `record_to_columns` took apart.

    Raises ValueError, naming the column, for anything that no run can leave behind: columns
    missing, of another type or of unequal length, numbers out of range, operations posted twice
    or by another rank, waits before their post, matches of operations that do not belong together.
    """
    read = _Reader(columns)
    world = read.number("world_size", 1, MAX_WORLD_SIZE)
    strings = read.strings()
    places = _places(read, strings)
    groups = _groups(read, world)
    operations = _operations(read, world, strings, places, groups)
    events = _events(read, world, places, operations)
    _check_matches(operations, groups)
    dependent = bool(read.number("order_dependent", 0, 1))
    return Record(world, operations, events, groups, dependent)


class _Numbers(Generic[T]):
    """A table of distinct values; asking for a value numbers it."""

    def __init__(self) -> None:
        self._numbers: dict[T, int] = {}

    def __getitem__(self, value: T) -> int:
        return self._numbers.setdefault(value, len(self._numbers))

    def maybe(self, value: T | None) -> int:
        return -1 if value is None else self[value]

    def __iter__(self) -> Iterator[T]:
        return iter(self._numbers)


def _column(values: Iterable[int]) -> torch.Tensor:
    try:
        return torch.tensor([int(value) for value in values], dtype=torch.int64)
    except (OverflowError, RuntimeError, ValueError) as error:
        raise ValueError(f"a number of the record does not fit into 64 bits: {error}") from error


def _offsets(rows: Iterable[Sequence[object]]) -> torch.Tensor:
    offsets = [0]
    for row in rows:
        offsets.append(offsets[-1] + len(row))
    return _column(offsets)


class _Reader:
    """Columns, checked one by one as they are read."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self.columns = columns

    def _get(self, name: str) -> Any:
        if name not in self.columns:
            raise ValueError(f"record without {name!r}")
        return self.columns[name]

    def number(self, name: str, low: int, high: int) -> int:
        value = self._get(name)
        if not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"{name} of a record must be {low} … {high}, got {value!r}")
        return int(value)

    def strings(self) -> list[str]:
        value = self._get("strings")
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise ValueError("strings of a record must be a list of texts")
        return value

    def column(
        self, name: str, length: int | None = None, low: int | None = None, high: int | None = None
    ) -> list[int]:
        """The values of a column: `length` of them, each in low … high (inclusive)."""
        value = self._get(name)
        if not isinstance(value, torch.Tensor) or value.dtype != torch.int64 or value.dim() != 1:
            raise ValueError(f"{name} of a record must be an int64 tensor of one dimension")
        if length is not None and value.numel() != length:
            raise ValueError(f"{name} of a record must have {length} values, got {value.numel()}")
        if value.numel():
            least, most = (int(bound) for bound in torch.aminmax(value))
            if (low is not None and least < low) or (high is not None and most > high):
                allowed = f"{'' if low is None else low} … {'' if high is None else high}"
                raise ValueError(f"{name} of a record must be in {allowed}, got {least} … {most}")
        return cast(list[int], value.tolist())

    def rows(self, name: str, rows: int, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """`values` cut at "name_offsets" into `rows` rows."""
        offsets = self.column(f"{name}_offsets", rows + 1, 0, len(values))
        pairs = list(pairwise(offsets))
        if offsets[0] != 0 or offsets[-1] != len(values) or any(a > b for a, b in pairs):
            raise ValueError(f"{name}_offsets of a record must rise from 0 to {len(values)}")
        return [tuple(values[a:b]) for a, b in pairs]


def _places(read: _Reader, strings: list[str]) -> list[Location]:
    files = read.column("place_file", None, 0, len(strings) - 1)
    lines = read.column("place_line", len(files), 0)
    functions = read.column("place_function", len(files), 0, len(strings) - 1)
    return [
        Location(strings[file], line, strings[function])
        for file, line, function in zip(files, lines, functions, strict=True)
    ]


def _groups(read: _Reader, world: int) -> dict[int, tuple[int, ...]]:
    keys = read.column("group_key")
    rows = read.rows("group_ranks", len(keys), read.column("group_ranks", None, 0, world - 1))
    if len(set(keys)) < len(keys) or any(not row or len(set(row)) < len(row) for row in rows):
        raise ValueError("group_ranks of a record must be distinct ranks, at least one a group")
    return dict(zip(keys, rows, strict=True))


def _operations(
    read: _Reader,
    world: int,
    strings: list[str],
    places: list[Location],
    groups: dict[int, tuple[int, ...]],
) -> list[Operation]:
    ranks = read.column("op_rank", None, 0, world - 1)
    count, texts = len(ranks), len(strings) - 1
    kinds = read.column("op_kind", count, 0, texts)
    if unknown := {strings[kind] for kind in set(kinds)} - OPERATION_KINDS:
        raise ValueError(f"op_kind of a record: unknown {sorted(unknown)}")
    group_keys = read.column("op_group", count)
    if unknown_groups := set(group_keys) - set(groups):
        raise ValueError(f"op_group of a record: unknown {sorted(unknown_groups)[:5]}")
    nbytes = read.column("op_nbytes", count, 0)
    rows = zip(
        range(count),
        ranks,
        [strings[kind] for kind in kinds],
        group_keys,
        read.column("op_peer", count, -1, world - 1),
        nbytes,
        read.rows("op_shape", count, read.column("op_shape", None, 0)),
        [strings[i] for i in read.column("op_dtype", count, 0, texts)],
        [strings[i] for i in read.column("op_device", count, 0, texts)],
        read.column("op_tag", count),
        read.column("op_batch", count, -1),
        read.column("op_match", count, -1),
        [_at(places, i) for i in read.column("op_location", count, -1, len(places) - 1)],
        read.rows("op_splits", count, read.column("op_splits", None, 0)),
        [bool(i) for i in read.column("op_order_dependent", count, 0, 1)],
        strict=True,
    )
    return [Operation(*row) for row in rows]


def _events(
    read: _Reader, world: int, places: list[Location], operations: list[Operation]
) -> list[list[Event]]:
    kinds = read.column("event_kind", None, 0, len(EVENT_KINDS) - 1)
    count = len(kinds)
    rows = zip(
        [EVENT_KINDS[kind] for kind in kinds],
        read.column("event_operation", count, -1, len(operations) - 1),
        read.column("event_flops", count, 0),
        read.column("event_nbytes", count, 0),
        [_at(places, i) for i in read.column("event_location", count, -1, len(places) - 1)],
        [bool(i) for i in read.column("event_region", count, 0, 1)],
        strict=True,
    )
    programs = read.rows("program", world, [Event(*row) for row in rows])
    posted = bytearray(len(operations))
    for rank, program in enumerate(programs):
        for event in program:
            op = event.operation
            if event.kind == "compute":
                continue
            if op < 0 or operations[op].rank != rank:
                raise ValueError(f"event_operation of a record: rank {rank} has no operation {op}")
            if posted[op] == (event.kind == "post"):
                problem = "posted twice" if posted[op] else "waited for before it was posted"
                raise ValueError(f"event_operation of a record: operation {op} is {problem}")
            posted[op] = 1
    return [list(program) for program in programs]


def _check_matches(operations: list[Operation], groups: dict[int, tuple[int, ...]]) -> None:
    """Matched operations are one message, or one call of every rank of a group."""
    together: dict[int, list[Operation]] = {}
    for operation in operations:
        ranks = groups[operation.group]
        if operation.splits and len(operation.splits) != len(ranks):
            raise ValueError(f"op_splits of operation {operation.id}: one per rank expected")
        if operation.match >= 0:
            together.setdefault(operation.match, []).append(operation)
    for match, sides in together.items():
        first = sides[0]
        if first.kind in ("send", "recv"):
            fits = (
                len(sides) == 2
                and {side.kind for side in sides} == {"send", "recv"}
                and sides[0].peer == sides[1].rank
                and sides[1].peer == sides[0].rank
                and sides[0].nbytes == sides[1].nbytes
            )
        else:
            ranks = groups[first.group]
            rooted = first.kind in ("broadcast", "reduce", "gather", "scatter")
            fits = (
                all(
                    (s.kind, s.group, s.peer) == (first.kind, first.group, first.peer)
                    for s in sides
                )
                and len(sides) == len(ranks)
                and {side.rank for side in sides} == set(ranks)
                and (not rooted or first.peer in ranks)
            )
        if not fits:
            ids = [side.id for side in sides][:8]
            raise ValueError(f"op_match {match} of a record joins operations {ids}")


def _at(places: list[Location], index: int) -> Location | None:
    return None if index < 0 else places[index]
