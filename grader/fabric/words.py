"""Operations in words, and the findings about two of them that do not fit together."""

from __future__ import annotations

from grader.fabric.findings import Finding, at, size_text
from grader.fabric.record import Location, Operation


def describe(operation: Operation) -> str:
    """An operation in words: "send of 4.0 KiB to rank 2"."""
    size = f"{size_text(operation.nbytes)} ({_shape(operation)})"
    if operation.kind == "send":
        return f"send of {size} to rank {operation.peer}{_tag(operation)}"
    if operation.kind == "recv":
        source = f"rank {operation.peer}" if operation.peer >= 0 else "any rank"
        return f"recv of {size} from {source}{_tag(operation)}"
    if operation.kind == "barrier":
        return "barrier"
    root = f", root rank {operation.peer}" if operation.peer >= 0 else ""
    return f"{operation.kind} of {size}{root}"


def _tag(operation: Operation) -> str:
    return f" with tag {operation.tag}" if operation.tag else ""


def _shape(operation: Operation) -> str:
    return f"{tuple(operation.shape)} {operation.dtype}"


def _where(*operations: Operation) -> dict[int, Location]:
    return {op.rank: op.location for op in operations if op.location is not None}


def message_mismatch(sent: Operation, received: Operation) -> Finding:
    """A send and a receive that belong together and do not fit."""
    what = []
    if sent.nbytes != received.nbytes:
        what.append(f"{size_text(sent.nbytes)} sent, {size_text(received.nbytes)} expected")
    if sent.dtype != received.dtype:
        what.append(f"{sent.dtype} sent, {received.dtype} expected")
    if sent.device != received.device:
        what.append(f"sent from {sent.device}, received on {received.device}")
    return Finding(
        "message_mismatch",
        f"sender and receiver disagree: {'; '.join(what)}.\n"
        f"  rank {sent.rank} sends {_shape(sent)} to rank {received.rank}{at(sent.location)}\n"
        f"  rank {received.rank} receives {_shape(received)} from rank {sent.rank}"
        f"{at(received.location)}",
        (received.rank, sent.rank),
        _where(received, sent),
        details={"sent": sent.nbytes, "expected": received.nbytes},
    )


def collective_mismatch(first: Operation, second: Operation, difference: str) -> Finding:
    """Two ranks' calls of what should be one collective."""
    return Finding(
        "collective_mismatch",
        f"ranks of one group call different collectives: {difference}.\n"
        f"  rank {first.rank} calls {describe(first)}{at(first.location)}\n"
        f"  rank {second.rank} calls {describe(second)}{at(second.location)}",
        (second.rank, first.rank),
        _where(second, first),
    )
