"""What the collectives of assignment 1 may send, read from the trace of one call.

p ranks of the default group, `nbytes` per tensor, `root` the rank that is special where one is;
rounds as `Trace` counts them.
"""

from __future__ import annotations

from collections.abc import Sequence

from grader.checks.causes import NOT_IN_MESSAGES
from grader.checks.framework import CheckFailed
from grader.fabric.trace import Trace

WIDENED = "16-bit values travel as 32-bit ones"
ONE_BY_ONE = "one rank after the other acts, so that the rounds grow with the number of ranks"


def log2_ceiling(ranks: int) -> int:
    """⌈log₂ p⌉."""
    return (ranks - 1).bit_length()


def rounds(trace: Trace, most: int) -> None:
    """No message is deeper than `most`, and several ranks send at least one."""
    ranks = len(trace.bytes_sent)
    if ranks > 1 and not trace.rounds:
        raise CheckFailed(
            f"{ranks} ranks sent no message, expected at least 1", cause=NOT_IN_MESSAGES
        )
    if trace.rounds > most:
        cause = ONE_BY_ONE if trace.rounds >= ranks - 1 else "a rank waits longer than it needs to"
        raise CheckFailed(
            f"{ranks} ranks took {trace.rounds} rounds, expected at most {most}", cause=cause
        )


def no_less(who: str, nbytes: int, needed: int) -> None:
    """Not fewer bytes than the results need, whatever the algorithm. who: "the root sent"."""
    if nbytes < needed:
        raise CheckFailed(
            f"{who} {nbytes} bytes, expected {needed}",
            cause=f"fewer bytes than the result needs: {NOT_IN_MESSAGES}",
        )


def total(trace: Trace, nbytes: int) -> None:
    """All ranks together send exactly so many bytes."""
    no_less(f"{len(trace.bytes_sent)} ranks sent", trace.total_bytes, nbytes)
    if trace.total_bytes != nbytes:
        raise CheckFailed(
            f"{len(trace.bytes_sent)} ranks sent {trace.total_bytes} bytes in all, "
            f"expected {nbytes}",
            cause=WIDENED
            if trace.total_bytes == 2 * nbytes
            else "some bytes travel more than once",
        )


def neighbours(trace: Trace, nbytes: int, root: int) -> None:
    """At most two messages of `nbytes` from each rank, to its neighbours only."""
    ranks = len(trace.bytes_sent)
    for rank, got in enumerate(trace.bytes_received):
        no_less(f"rank {rank} received", got, min(2, ranks - 1) * nbytes)
    for rank, peers in enumerate(trace.peers):
        strangers = peers - {(rank - 1) % ranks, (rank + 1) % ranks}
        if strangers:
            raise CheckFailed(
                f"rank {rank} of {ranks} sent to rank {min(strangers)}, which is not a neighbour",
                cause=f"rank {min(strangers)} is not its neighbour: it needs nothing from it",
            )
        if trace.messages_sent[rank] > 2 or trace.bytes_sent[rank] > 2 * nbytes:
            raise CheckFailed(
                f"rank {rank} sent {trace.messages_sent[rank]} messages with "
                f"{trace.bytes_sent[rank]} bytes, expected at most 2 with {2 * nbytes}",
                cause=WIDENED if trace.messages_sent[rank] <= 2 else "a tensor is sent twice",
            )


def broadcast_tree(trace: Trace, nbytes: int, root: int) -> None:
    """p − 1 messages; no rank sends more than ⌈log₂ p⌉."""
    ranks = len(trace.bytes_sent)
    most = log2_ceiling(ranks)
    for rank, got in enumerate(trace.bytes_received):
        no_less(f"rank {rank} received", got, nbytes if rank != root else 0)
    for rank, count in enumerate(trace.messages_sent):
        if count > most:
            cause = "a rank passes the tensor on more often than in every round once"
            if rank == root and count == ranks - 1:
                cause = (
                    f"the root sent to every rank itself: {count} messages where a tree needs "
                    f"at most {most}"
                )
            raise CheckFailed(
                f"rank {rank} sent {count} messages, expected at most {most} of {ranks} ranks",
                cause=cause,
            )
    _message_count(trace, ranks - 1)
    total(trace, (ranks - 1) * nbytes)


def reduce_tree(trace: Trace, nbytes: int, root: int) -> None:
    """One message from every rank but the root, which receives at most ⌈log₂ p⌉."""
    ranks = len(trace.bytes_sent)
    most = log2_ceiling(ranks)
    for rank, count in enumerate(trace.messages_sent):
        allowed = 0 if rank == root else 1
        no_less(f"rank {rank} sent", trace.bytes_sent[rank], allowed * nbytes)
        if count > allowed:
            raise CheckFailed(
                f"rank {rank} sent {count} messages, expected at most {allowed}",
                cause="in a tree every rank but the root sends its partial result once",
            )
    for rank, count in enumerate(trace.messages_received):
        if count > most:
            cause = "the tree is not balanced: some rank has too many children"
            if rank == root and count == ranks - 1:
                cause = (
                    f"every rank sent to the root itself: it receives {count} messages where a "
                    f"tree needs at most {most}"
                )
            raise CheckFailed(
                f"rank {rank} received {count} messages, expected at most {most}", cause=cause
            )
    total(trace, (ranks - 1) * nbytes)


def scatter_volume(trace: Trace, nbytes: int, root: int) -> None:
    """The root sends the others' tensors, once; nobody relays more than half of all."""
    ranks = len(trace.bytes_sent)
    needed = (ranks - 1) * nbytes
    no_less(f"the root sent to {ranks - 1} ranks", trace.bytes_sent[root], needed)
    if trace.bytes_sent[root] != needed:
        sent = trace.bytes_sent[root]
        more = "the root sends more than the others' tensors, each once"
        if sent == 2 * needed:
            more = WIDENED
        raise CheckFailed(
            f"the root sent {sent} bytes to {ranks - 1} ranks, expected {needed}", cause=more
        )
    _relays(trace, trace.bytes_sent, ranks * nbytes // 2, root, "sent")


def gather_volume(trace: Trace, nbytes: int, root: int) -> None:
    """The root receives the others' tensors, once; nobody relays more than half of all."""
    ranks = len(trace.bytes_sent)
    needed = (ranks - 1) * nbytes
    if trace.messages_sent[root]:
        raise CheckFailed(
            f"the root sent {trace.messages_sent[root]} messages, expected none",
            cause="the tensors go not only to the root, but to ranks that do not need them",
        )
    no_less(f"the root received from {ranks - 1} ranks", trace.bytes_received[root], needed)
    if trace.bytes_received[root] != needed:
        got = trace.bytes_received[root]
        raise CheckFailed(
            f"the root received {got} bytes from {ranks - 1} ranks, expected {needed}",
            cause=WIDENED if got == 2 * needed else "a tensor arrives more than once",
        )
    _relays(trace, trace.bytes_sent, ranks * nbytes // 2, root, "sent")


def all_gather_volume(trace: Trace, nbytes: int, root: int) -> None:
    """Every rank receives the p − 1 tensors that it lacks."""
    ranks = len(trace.bytes_sent)
    needed = (ranks - 1) * nbytes
    for rank, got in enumerate(trace.bytes_received):
        no_less(f"rank {rank} received", got, needed)
        if got != needed:
            cause = "a rank receives something twice, or something it has"
            if got == ranks * nbytes:
                cause = "its own tensor came back to it"
            if got == 2 * needed:
                cause = WIDENED
            raise CheckFailed(
                f"rank {rank} received {got} bytes, expected {needed}: {ranks - 1} tensors of "
                f"{nbytes} bytes",
                cause=cause,
            )


def reduce_scatter_volume(trace: Trace, nbytes: int, root: int) -> None:
    """Every rank sends p − 1 entries of `nbytes`."""
    ranks = len(trace.bytes_sent)
    needed = (ranks - 1) * nbytes
    no_less(f"{ranks} ranks sent", trace.total_bytes, ranks * needed)
    for rank, sent in enumerate(trace.bytes_sent):
        if sent != needed:
            cause = "entries that the receiver does not need are sent along"
            if sent < needed:
                cause = "a rank sends less than its share, and others send more in its place"
            if sent == 2 * needed:
                cause = WIDENED
            raise CheckFailed(
                f"rank {rank} sent {sent} bytes, expected {needed}: {ranks - 1} entries of "
                f"{nbytes} bytes",
                cause=cause,
            )


def all_to_all_volume(trace: Trace, rows: Sequence[Sequence[int]], row_bytes: int) -> None:
    """rows[i][j] rows straight from i to j, in one message; none to oneself, none for no rows."""
    for rank, counts in enumerate(rows):
        messages = [0] * len(rows)
        for operation in trace.operations(rank, "send"):
            messages[operation.peer] += 1
        for peer, count in enumerate(counts):
            sent, needed = trace.traffic[rank, peer], count * row_bytes if peer != rank else 0
            where = f"rank {rank} sent {sent} bytes in {messages[peer]} messages to rank {peer}"
            if messages[peer] and peer == rank:
                raise CheckFailed(where, cause="a rank sends to itself: its own slice is a copy")
            if sent != needed:
                cause = "a rank sends more bytes than its slices have (padding, or a relay)"
                if messages[peer] > 1:
                    cause = "something travels beside the slice, such as sizes, which are arguments"
                if trace.bytes_sent[rank] < row_bytes * (sum(counts) - counts[rank]):
                    cause = f"fewer bytes than the slices have: {NOT_IN_MESSAGES}"
                elif sent < needed:
                    cause = "the slice goes another way than straight to its rank"
                raise CheckFailed(f"{where}, expected {needed} bytes", cause=cause)
            if messages[peer] > (needed > 0):
                cause = "an empty slice needs no message" if not needed else "a slice is cut up"
                raise CheckFailed(f"{where}, expected {int(needed > 0)} messages", cause=cause)


def barrier_volume(trace: Trace) -> None:
    """At most ⌈log₂ p⌉ messages of at most 8 bytes from a rank, in as many rounds."""
    ranks = len(trace.bytes_sent)
    most = log2_ceiling(ranks)
    for rank, count in enumerate(trace.messages_sent):
        if count > most:
            cause = "more signals than one in each round"
            if count == ranks - 1:
                cause = "one rank sends to all: a barrier through one rank"
                if all(each == ranks - 1 for each in trace.messages_sent):
                    cause = "every rank sends to everybody, not at distances 2^k"
            raise CheckFailed(
                f"rank {rank} sent {count} messages, expected at most {most}", cause=cause
            )
        if trace.bytes_sent[rank] > 8 * count:
            raise CheckFailed(
                f"rank {rank} sent {trace.bytes_sent[rank]} bytes in {count} messages, expected "
                f"at most 8 bytes each",
                cause="a signal needs no contents",
            )
    rounds(trace, most)


def pairwise_volume(trace: Trace, nbytes: int, root: int) -> None:
    """One whole tensor from every rank to every other."""
    ranks = len(trace.bytes_sent)
    for rank, count in enumerate(trace.messages_sent):
        others = set(range(ranks)) - {rank}
        if trace.peers[rank] != others or count != ranks - 1:
            busiest = max(range(ranks), key=trace.messages_sent.__getitem__)
            cause = "not every pair of ranks exchanges tensors"
            if count == 0:
                cause = f"rank {rank} sends nothing at all"
            elif trace.peers[rank] == others:
                cause = "a tensor travels in several messages"
            if all(peers <= {busiest} for r, peers in enumerate(trace.peers) if r != busiest):
                cause = f"everything goes through one rank, {busiest}: that is a parameter server"
            raise CheckFailed(
                f"rank {rank} sent {count} messages to ranks {sorted(trace.peers[rank])}, expected "
                f"one to each of {sorted(others)}",
                cause=cause,
            )
    total(trace, ranks * (ranks - 1) * nbytes)
    rounds(trace, ranks - 1)


def parameter_server_volume(trace: Trace, nbytes: int, server: int) -> None:
    """One tensor from every worker to the server, one back to each, in two rounds."""
    ranks = len(trace.bytes_sent)
    for rank, peers in enumerate(trace.peers):
        if rank != server and not peers:
            raise CheckFailed(
                f"worker {rank} sent nothing, expected {nbytes} bytes to the server, rank {server}",
                cause=NOT_IN_MESSAGES,
            )
        if rank != server and peers != {server}:
            centre = max(range(ranks), key=trace.messages_sent.__getitem__)
            cause = "workers talk to each other"
            if centre != server:
                cause = f"rank {centre} does the work, but it is not the server"
            raise CheckFailed(
                f"rank {rank} sent to ranks {sorted(peers)}, expected to the server only, "
                f"rank {server}",
                cause=cause,
            )
        allowed = (ranks - 1) * nbytes if rank == server else nbytes
        sent = trace.bytes_sent[rank]
        what = "the server" if rank == server else f"worker {rank}"
        no_less(f"{what} sent", sent, allowed)
        if sent != allowed:
            cause = f"{what} sends more than it needs to"
            if rank == server:
                cause = "the server sends more than one result to each worker"
            if sent == 2 * allowed:
                cause = WIDENED
            raise CheckFailed(f"{what} sent {sent} bytes, expected {allowed}", cause=cause)
    rounds(trace, 2)


def _message_count(trace: Trace, expected: int) -> None:
    count = sum(trace.messages_sent)
    if count < expected:
        raise CheckFailed(
            f"{len(trace.bytes_sent)} ranks sent {count} messages, expected {expected}",
            cause=f"fewer messages than ranks that need one: {NOT_IN_MESSAGES}",
        )
    if count != expected:
        raise CheckFailed(
            f"{len(trace.bytes_sent)} ranks sent {count} messages, expected {expected}",
            cause="a tensor travels in several messages, or to a rank that has it",
        )


def _relays(trace: Trace, sent: Sequence[int], most: int, root: int, verb: str) -> None:
    for rank, nbytes in enumerate(sent):
        if rank != root and nbytes > most:
            raise CheckFailed(
                f"rank {rank} {verb} {nbytes} bytes, expected at most {most}",
                cause="the tensors go not only to the root, but to ranks that do not need them",
            )
    rounds(trace, log2_ceiling(len(sent)))
