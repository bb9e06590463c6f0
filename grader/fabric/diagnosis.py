"""Reading a run that cannot go on, or that left something undone."""

from __future__ import annotations

from grader.fabric.engine import Engine, Pending
from grader.fabric.findings import Finding, at, more_ranks, size_text
from grader.fabric.threads import RankThread
from grader.fabric.words import describe

#: Positions of more ranks than this are summed up.
SHOWN = 12


def position(thread: RankThread) -> str:
    """What one rank is doing, in a line."""
    if thread.status == "done":
        return f"rank {thread.rank} has returned"
    pending = thread.waits_for
    if pending is None and thread.status == "sleeping":
        return f"rank {thread.rank} waits in the store or sleeps"
    if pending is None or pending.done:
        return f"rank {thread.rank} could run"
    operation = pending.operation
    return f"rank {thread.rank} waits for its {describe(operation)}{at(operation.location)}"


def positions(threads: list[RankThread], without: frozenset[int] = frozenset()) -> str:
    """Where every rank is, a line each; a long list is cut."""
    lines = [f"  {position(t)}" for t in threads if t.rank not in without]
    if len(lines) > SHOWN:
        lines = [*lines[:SHOWN], f"  … and {more_ranks(len(lines) - SHOWN)}"]
    return "\n".join(lines)


def find_cycle(waits: dict[int, list[int]]) -> list[int]:
    """Ranks a → b → … that wait for each other in a circle; empty if there is none.

    The shortest one through the lowest rank that is on any is returned.
    """
    for start in sorted(waits):
        previous: dict[int, int] = {}
        frontier = [start]
        while frontier:
            following: list[int] = []
            for rank in frontier:
                for other in waits.get(rank, ()):
                    if other == start:
                        cycle = [rank]
                        while cycle[-1] != start:
                            cycle.append(previous[cycle[-1]])
                        return cycle[::-1]
                    if other in waits and other not in previous:
                        previous[other] = rank
                        following.append(other)
            frontier = following
    return []


def deadlock(engine: Engine, threads: list[RankThread]) -> Finding:
    """Why no rank can go on: the cycle of who waits for whom, or who has left."""
    waiting = {t.rank: t.waits_for for t in threads if t.status != "done" and t.waits_for}
    waits = {rank: engine.awaited_ranks(pending) for rank, pending in waiting.items()}
    cycle = find_cycle(waits)
    hints = _hints(engine, waiting, waits, threads)
    if cycle:
        arrows = " → ".join(f"rank {rank}" for rank in [*cycle, cycle[0]][: SHOWN + 1])
        if len(cycle) >= SHOWN + 1:
            arrows += " → …"
        involved = cycle
        head = f"deadlock: {arrows} wait for each other."
    else:
        involved = [
            rank
            for rank, others in waits.items()
            if any(threads[other].status == "done" for other in others)
        ] or sorted(waits)
        gone = sorted(
            {o for r in involved for o in waits.get(r, ()) if threads[o].status == "done"}
        )
        left = ", ".join(f"rank {rank}" for rank in gone[:SHOWN])
        head = (
            f"deadlock: {left} returned without doing what others wait for."
            if gone
            else "deadlock: no rank can go on."
        )
    shown = [t for t in threads if t.rank in set(involved)] or threads
    body = "\n".join([positions(shown), *_in_the_same_batch(engine, shown)])
    rest = [t for t in threads if t.rank not in set(involved)]
    others = f"\nThe others:\n{positions(rest)}" if rest and involved else ""
    locations = {
        rank: location
        for rank, pending in waiting.items()
        if (location := pending.operation.location) is not None
    }
    message = "\n".join([head, body]) + others + "".join(f"\n{hint}" for hint in hints)
    return Finding(
        "deadlock",
        message,
        tuple(involved),
        locations,
        details={"cycle": list(cycle), "waits": {str(r): o for r, o in waits.items()}},
    )


def _in_the_same_batch(engine: Engine, threads: list[RankThread]) -> list[str]:
    """What else of the batch that a rank waits for is not done; of a few ranks."""
    lines = []
    for thread in threads[:SHOWN]:
        first = thread.waits_for
        if thread.status == "done" or first is None or first.operation.batch < 0:
            continue
        lines += [
            f"  rank {thread.rank} waits in the same batch for its {describe(other.operation)}"
            for other in engine.pending[thread.rank].values()
            if other is not first
            and not other.done
            and other.operation.batch == first.operation.batch
        ]
    return lines[:SHOWN]


def _gone(waits: dict[int, list[int]], threads: list[RankThread]) -> bool:
    """Whether somebody waits for a rank that has returned."""
    return any(threads[other].status == "done" for others in waits.values() for other in others)


def _hints(
    engine: Engine,
    waiting: dict[int, Pending],
    waits: dict[int, list[int]],
    threads: list[RankThread],
) -> list[str]:
    hints: list[str] = []
    for rank, pending in waiting.items():
        miss = engine.near_miss(pending)
        if miss is not None and not _matches(pending, miss.tag, miss.group):
            what = "tags" if miss.tag != pending.operation.tag else "groups"
            hints.append(
                f"Rank {rank}'s {describe(pending.operation)} would match rank {miss.rank}'s "
                f"{describe(miss)}{at(miss.location)}, but their {what} differ."
            )
            break
    behind = _behind(engine, waiting)
    kinds = {pending.operation.kind for pending in waiting.values()}
    if behind is not None:
        pending, ahead = behind
        hints.append(
            f"Rank {pending.operation.rank}'s {describe(pending.operation)}"
            f"{at(pending.operation.location)} stands behind its {describe(ahead.operation)}"
            f"{at(ahead.operation.location)}: NCCL carries out the unbatched point-to-point calls "
            f"of a group in the order they were posted. Hand them to batch_isend_irecv, which "
            f"starts them together."
        )
    elif any(p.operation.batch >= 0 and not p.operation.nbytes for p in waiting.values()):
        hints.append(
            "An empty message is a message too: a send of 0 bytes needs a receive of 0 bytes."
        )
    elif _gone(waits, threads) or any(p.operation.batch >= 0 for p in waiting.values()):
        pass  # the advice below is for ranks that stand face to face, one call at a time
    elif kinds == {"send"} and len(waiting) > 1:
        hints.append(
            "Every rank here sends first: post both at once with batch_isend_irecv (or isend, "
            "recv, wait)."
        )
    elif kinds == {"recv"} and len(waiting) > 1:
        hints.append("Every rank here receives first, and nobody has sent yet.")
    return hints


def _behind(engine: Engine, waiting: dict[int, Pending]) -> tuple[Pending, Pending] | None:
    """An operation that NCCL's order holds back, and what it stands behind."""
    for rank in waiting:
        for pending in engine.pending[rank].values():
            ahead = engine.ahead_of(pending)
            if ahead is not None:
                return pending, ahead
    return None


def _matches(pending: Pending, tag: int, group: int) -> bool:
    return pending.operation.tag == tag and pending.operation.group == group


def leftovers(engine: Engine, regions: bool = False) -> list[Finding]:
    """What the ranks left behind although all of them returned."""
    findings: list[Finding] = []
    for rank, pendings in enumerate(engine.pending):
        for pending in pendings.values():
            operation = pending.operation
            locations = {} if operation.location is None else {rank: operation.location}
            where = at(operation.location)
            if operation.kind == "send" and not pending.done:
                findings.append(
                    Finding(
                        "message_not_received",
                        f"rank {rank} sent {size_text(operation.nbytes)} to rank "
                        f"{operation.peer}{where}, which rank {operation.peer} never received.",
                        (rank, operation.peer),
                        locations,
                    )
                )
            elif operation.kind == "send":
                findings.append(
                    Finding(
                        "send_not_waited",
                        f"rank {rank} never waited for its {describe(operation)}{where}: the "
                        f"buffer may not be reused or freed before wait().",
                        (rank,),
                        locations,
                        severity="warning",
                    )
                )
            else:
                state = "" if pending.done else ", and it cannot be done: nothing was sent"
                if operation.kind != "recv":
                    state = "" if pending.done else ", and not every rank took part"
                findings.append(
                    Finding(
                        "receive_not_waited",
                        f"rank {rank} never waited for its {describe(operation)}{where}{state}. "
                        f"Its buffer holds nothing that may be read before wait().",
                        (rank,),
                        locations,
                    )
                )
    order = {"message_not_received": 0, "receive_not_waited": 1, "send_not_waited": 2}
    return sorted(findings, key=lambda finding: order[finding.kind])
