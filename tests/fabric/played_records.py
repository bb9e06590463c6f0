"""Known algorithms played into records, without running a single rank.

`Script` writes one rank's program after the other; messages are matched at the end, first in,
first out per pair of ranks, so the order of writing plays no part.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence

from grader.fabric.record import Event, Location, Operation, Record


class Script:
    """A record being written. Sizes in bytes, ranks global."""

    def __init__(self, world_size: int) -> None:
        self.record = Record(world_size, events=[[] for _ in range(world_size)])
        self.record.groups[0] = tuple(range(world_size))
        self.region = True

    def compute(self, rank: int, flops: int = 0, nbytes: int = 0) -> None:
        event = Event("compute", -1, flops, nbytes, Location("a.py", 3, "f"), self.region)
        self.record.events[rank].append(event)

    def send(self, rank: int, dst: int, nbytes: int) -> int:
        return self._post(rank, "send", dst, nbytes)

    def recv(self, rank: int, src: int, nbytes: int) -> int:
        return self._post(rank, "recv", src, nbytes)

    def collective(
        self,
        rank: int,
        kind: str,
        nbytes: int,
        group: int = 0,
        root: int = -1,
        splits: tuple[int, ...] = (),
    ) -> int:
        op = self._post(rank, kind, root, nbytes, group)
        self.record.operations[op].splits = splits
        return op

    def wait(self, rank: int, *ops: int) -> None:
        for op in ops:
            self.record.events[rank].append(Event("wait", op, region=self.region))

    def step(self, rank: int, sends: Iterable[tuple[int, int]], recvs: Iterable[int]) -> None:
        """Post sends (dst, nbytes) and receives (src), together, and wait for all.

        A receive takes what its sender sends, so its size is filled in when matched.
        """
        ops = [self.send(rank, dst, nbytes) for dst, nbytes in sends]
        ops += [self.recv(rank, src, -1) for src in recvs]
        self.wait(rank, *ops)

    def _post(self, rank: int, kind: str, peer: int, nbytes: int, group: int = 0) -> int:
        op = len(self.record.operations)
        where = Location("dir/a.py", 7, "g")
        self.record.operations.append(
            Operation(
                op, rank, kind, group, peer, nbytes, (nbytes,), "uint8", "meta", 0, -1, -1, where
            )
        )
        self.record.events[rank].append(Event("post", op, region=self.region))
        return op

    def done(self) -> Record:
        """The record, matched."""
        matches = 0
        sends: dict[tuple[int, int], deque[Operation]] = defaultdict(deque)
        calls: dict[tuple[int, int], list[Operation]] = defaultdict(list)
        seen: dict[tuple[int, int], int] = defaultdict(int)
        for op in self.record.operations:
            if op.kind == "send":
                sends[op.rank, op.peer].append(op)
            elif op.kind != "recv":
                calls[op.group, seen[op.group, op.rank]].append(op)
                seen[op.group, op.rank] += 1
        for op in self.record.operations:
            if op.kind == "recv" and sends[op.peer, op.rank]:
                sent = sends[op.peer, op.rank].popleft()
                op.match = sent.match = matches
                op.nbytes, op.shape = sent.nbytes, sent.shape
                matches += 1
        for op in self.record.operations:
            op.nbytes = max(op.nbytes, 0)
            op.shape = (op.nbytes,)
        for (group, _), members in calls.items():
            if len(members) == len(self.record.groups[group]):
                for op in members:
                    op.match = matches
                matches += 1
        return self.record


def ring_all_reduce(s: Script, ranks: Sequence[int], nbytes: int) -> None:
    """nbytes must be divisible by the number of ranks."""
    for i, rank in enumerate(ranks):
        for _ in range(2 * (len(ranks) - 1)):
            _ring_step(s, ranks, i, rank, nbytes)


def ring_half(s: Script, ranks: Sequence[int], nbytes: int) -> None:
    """A ring's reduce-scatter, or all-gather."""
    for i, rank in enumerate(ranks):
        for _ in range(len(ranks) - 1):
            _ring_step(s, ranks, i, rank, nbytes)


def _ring_step(s: Script, ranks: Sequence[int], i: int, rank: int, nbytes: int) -> None:
    p = len(ranks)
    s.step(rank, [(ranks[(i + 1) % p], nbytes // p)], [ranks[(i - 1) % p]])


def pairwise_all_reduce(s: Script, p: int, nbytes: int) -> None:
    for rank in range(p):
        for k in range(1, p):
            s.step(rank, [((rank + k) % p, nbytes)], [(rank - k) % p])


def posted_at_once(s: Script, p: int, nbytes: int) -> None:
    for rank in range(p):
        others = [(rank + k) % p for k in range(1, p)]
        s.step(rank, [(other, nbytes) for other in others], others)


def pairwise_all_to_all(s: Script, p: int, nbytes: int) -> None:
    pairwise_all_reduce(s, p, nbytes // p)


def parameter_server(s: Script, p: int, nbytes: int) -> None:
    clients = range(1, p)
    s.step(0, [], clients)
    s.step(0, [(c, nbytes) for c in clients], [])
    for client in clients:
        s.step(client, [(0, nbytes)], [])
        s.step(client, [], [0])


def _folded(s: Script, p: int, nbytes: int, inner: Callable[[list[int]], None]) -> None:
    """Ranks beyond the largest power of two hand their vector in first, and get it back."""
    q = 1 << (p.bit_length() - 1)
    for extra in range(q, p):
        s.step(extra, [(extra - q, nbytes)], [])
        s.step(extra - q, [], [extra])
    inner(list(range(q)))
    for extra in range(q, p):
        s.step(extra - q, [(extra, nbytes)], [])
        s.step(extra, [], [extra - q])


def recursive_doubling(s: Script, p: int, nbytes: int) -> None:
    def inner(ranks: list[int]) -> None:
        for rank in ranks:
            for j in range(len(ranks).bit_length() - 1):
                s.step(rank, [(rank ^ (1 << j), nbytes)], [rank ^ (1 << j)])

    _folded(s, p, nbytes, inner)


def halving_doubling(s: Script, p: int, nbytes: int) -> None:
    def inner(ranks: list[int]) -> None:
        levels = range(len(ranks).bit_length() - 1)
        for rank in ranks:
            for j in levels:
                s.step(rank, [(rank ^ (1 << j), nbytes >> (j + 1))], [rank ^ (1 << j)])
            for j in reversed(levels):
                s.step(rank, [(rank ^ (1 << j), nbytes >> (j + 1))], [rank ^ (1 << j)])

    _folded(s, p, nbytes, inner)


def binomial_reduce(s: Script, p: int, nbytes: int) -> None:
    for rank in range(p):
        bit = 1
        while bit < p:
            if rank & bit:
                s.step(rank, [(rank - bit, nbytes)], [])
                break
            if rank + bit < p:
                s.step(rank, [], [rank + bit])
            bit <<= 1


def binomial_broadcast(s: Script, p: int, nbytes: int) -> None:
    for rank in range(p):
        lowest = rank & -rank if rank else 1 << (p - 1).bit_length()
        if rank:
            s.step(rank, [], [rank - lowest])
        bit = lowest >> 1
        while bit:
            if rank + bit < p:
                s.step(rank, [(rank + bit, nbytes)], [])
            bit >>= 1


def binomial_all_reduce(s: Script, p: int, nbytes: int) -> None:
    binomial_reduce(s, p, nbytes)
    binomial_broadcast(s, p, nbytes)


def hierarchical_all_reduce(s: Script, nodes: int, per_node: int, nbytes: int) -> None:
    inside = [range(n * per_node, (n + 1) * per_node) for n in range(nodes)]
    across = [range(d, nodes * per_node, per_node) for d in range(per_node)]
    for ranks in inside:
        ring_half(s, ranks, nbytes)
    for ranks in across:
        ring_all_reduce(s, ranks, nbytes // per_node)
    for ranks in inside:
        ring_half(s, ranks, nbytes)


def renumbered(record: Record, order: Sequence[int]) -> Record:
    """The same run as another host order would have recorded it: operation i becomes order[i]."""
    n = len(record.operations)
    operations = list(record.operations)
    matches = {match: n - i for i, match in enumerate({op.match for op in record.operations})}
    for op in record.operations:
        operations[order[op.id]] = Operation(
            order[op.id],
            op.rank,
            op.kind,
            op.group,
            op.peer,
            op.nbytes,
            op.shape,
            op.dtype,
            op.device,
            match=matches[op.match] if op.match >= 0 else -1,
            location=op.location,
            splits=op.splits,
        )
    events = [
        [e if e.operation < 0 else e._replace(operation=order[e.operation]) for e in program]
        for program in record.events
    ]
    return Record(record.world_size, operations, events, record.groups, record.order_dependent)
