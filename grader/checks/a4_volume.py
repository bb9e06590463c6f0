"""What a layer sends forward and backward, from a trace and the marks of its driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from grader.checks.framework import CheckFailed
from grader.fabric.record import Operation
from grader.fabric.trace import Trace

#: How many times (n − 1) / n of the whole tensor a rank sends in these.
SHARES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}


def calls(trace: Trace, rank: int, begin: int, end: int) -> list[Operation]:
    """Counted operations that a rank posted between two marks."""
    record = trace.record
    return [
        record.operations[event.operation]
        for event in record.events[rank][begin:end]
        if event.kind == "post" and event.region
    ]


def phases(
    trace: Trace, rank: int, marks: Sequence[int]
) -> tuple[list[Operation], list[Operation]]:
    """Operations of forward and of backward."""
    return calls(trace, rank, marks[0], marks[1]), calls(trace, rank, marks[1], marks[2])


def sent(operations: Sequence[Operation], size: int) -> int:
    """Bytes that a rank of `size` sends in them, by the algorithms that the clock assumes."""
    total = 0
    for operation in operations:
        if operation.kind == "send":
            total += operation.nbytes
        elif operation.kind in ("all_reduce", "reduce_scatter"):
            total += -(-SHARES[operation.kind] * (size - 1) * operation.nbytes // size)
        elif operation.kind == "all_gather":
            total += (size - 1) * operation.nbytes
        elif operation.kind == "all_to_all":
            # All but what stays; tasks that may use it have equal shares.
            own = max(operation.splits, default=operation.nbytes // size)
            total += operation.nbytes - own
        elif operation.kind != "recv":
            total += operation.nbytes
    return total


def words(operations: Sequence[Operation]) -> str:
    """ "2 all_reduce (128 bytes), 1 send (64 bytes)", or "nothing"."""
    counted = Counter((op.kind, op.nbytes) for op in operations)
    return (
        ", ".join(f"{n} {kind} of {nbytes} bytes" for (kind, nbytes), n in counted.items())
        or "nothing"
    )


def expect_phase(
    operations: Sequence[Operation],
    size: int,
    allowed: int,
    where: str,
    expected: str,
    cause: str | None = None,
) -> int:
    """At most `allowed` bytes sent by a rank. expected: in words. Returns the bytes."""
    nbytes = sent(operations, size)
    if nbytes > allowed:
        raise CheckFailed(
            f"{where}: {words(operations)}, that is {nbytes} bytes sent by the rank; expected "
            f"{expected}, {allowed} bytes",
            cause=cause,
        )
    return nbytes


def expect_calls(
    operations: Sequence[Operation], kind: str, most: int, where: str, cause: str | None = None
) -> None:
    """At most `most` calls of a collective."""
    found = [op for op in operations if op.kind == kind]
    if len(found) > most:
        raise CheckFailed(
            f"{where}: {words(operations)}; expected at most {most} {kind}", cause=cause
        )


def moved(kind: str, nbytes: int, size: int) -> int:
    """Bytes a rank sends in one such collective on a whole tensor of `nbytes`."""
    return -(-SHARES[kind] * (size - 1) * nbytes // size)


def most(values: Sequence[Any]) -> Any:
    """The largest, 0 of none."""
    return max(values, default=0)
