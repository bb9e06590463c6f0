"""Ranks as processes behind sockets: what threads do, they do; what no rank does is refused."""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import pytest
import torch
import torch.distributed as dist

from grader.fabric import broker as brokers
from grader.fabric import broker_wire as wire
from grader.fabric import region, simulate
from grader.fabric.broker import Broker, whole
from grader.fabric.findings import SimulationAborted
from grader.fabric.remote import live
from grader.fabric.trace import Trace
from tests.fabric.ranks import data

Program = Callable[[int], Any]
_fork = multiprocessing.get_context("fork")


def _rank(
    program: Program, channel: socket.socket, rank: int, size: int, answer: Connection, how: Any
) -> None:
    torch.set_num_threads(1)
    try:
        value = live(lambda: program(rank), channel, rank, size, **how)
    except SimulationAborted:
        value = "aborted"
    except Exception as error:
        value = f"{type(error).__name__}: {error}"
    answer.send_bytes(pickle.dumps(value))


def served(broker: Broker, seconds: float = 20.0) -> None:
    """Let the broker work until every rank has ended."""
    deadline = time.monotonic() + seconds
    with selectors.PollSelector() as selector:
        broker.register(selector)
        while not broker.over:
            assert time.monotonic() < deadline, "the world does not end"
            for key, mask in selector.select(0.05):
                key.data(mask)
            broker.tick(time.monotonic())
        broker.close()


def play(
    program: Program, size: int = 4, p2p: Any = "gloo", **how: Any
) -> tuple[list[Any], Broker]:
    """What program(rank) returned in each process, and the broker."""
    pairs = [socket.socketpair() for _ in range(size)]
    answers = [_fork.Pipe(duplex=False) for _ in range(size)]
    ranks = []
    for rank in range(size):
        arguments = (program, pairs[rank][1], rank, size, answers[rank][1], how)
        ranks.append(_fork.Process(target=_rank, args=arguments))
        ranks[-1].start()
    for _, end in pairs:
        end.close()
    broker = Broker([pair[0] for pair in pairs], p2p=p2p, allow=how.get("allow"))
    served(broker)
    broker.conclude()
    values = [pickle.loads(end.recv_bytes()) if end.poll(10) else None for end, _ in answers]
    for process in ranks:
        process.join(10)
    return values, broker


def kinds(broker: Broker) -> list[str]:
    return [finding.kind for finding in broker.findings]


# What ranks do ------------------------------------------------------------------------------------


def ring(rank: int) -> torch.Tensor:
    """A ring all-reduce of whole vectors, in batches, on the default group."""
    size = dist.get_world_size()
    total, passing = data(rank), data(rank)
    for _ in range(size - 1):
        coming = torch.empty_like(passing)
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, passing, (rank + 1) % size),
                dist.P2POp(dist.irecv, coming, (rank - 1) % size),
            ]
        )
        for work in works:
            work.wait()
        total += coming
        passing = coming
    return total


def collectives(rank: int) -> list[torch.Tensor]:
    """Every collective, once, and some on a sub-group in another order."""
    size = dist.get_world_size()
    found = []
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT):
        tensor = data(rank)
        dist.all_reduce(tensor, op)
        found.append(tensor)
    tensor = data(rank)
    dist.broadcast(tensor, 1)
    found.append(tensor)
    tensor = data(rank, dtype=torch.bfloat16)
    dist.reduce(tensor, 2)
    found.append(tensor)
    gathered = [torch.empty(3, 2) for _ in range(size)]
    dist.all_gather(gathered, data(rank))
    found += gathered
    whole_ = torch.empty(size * 3, 2)
    dist.all_gather_into_tensor(whole_, data(rank))
    found.append(whole_)
    if rank == 0:
        lists = [torch.empty(3, 2) for _ in range(size)]
        dist.gather(data(rank), lists, dst=0)
        found += lists
    else:
        dist.gather(data(rank), dst=0)
    out = torch.empty(3, 2)
    dist.scatter(out, [data(r) for r in range(size)] if rank == 3 else None, src=3)
    found.append(out)
    out = torch.empty(2)
    dist.reduce_scatter_tensor(out, data(rank, (2 * size,)))
    found.append(out)
    out = torch.empty(size)
    dist.all_to_all_single(out, data(rank, (size,)))
    found.append(out)
    dist.barrier()
    group = dist.new_group([3, 0, 2], sort_ranks=False)
    if rank != 1:
        outs = [torch.empty(3, 2) for _ in range(3)]
        dist.all_gather(outs, data(rank), group=group)
        found += outs
        work = dist.all_reduce(outs[0], group=group, async_op=True)
        assert work is not None
        work.wait()
        found.append(outs[0])
    objects: list[Any] = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(size)]
    return found


def quiet(rank: int) -> float:
    """One counted message, and one that the grader sends for itself."""
    tensor = torch.full((10,), float(rank))
    with region(False):
        dist.send(tensor, 1) if rank == 0 else dist.recv(tensor, 0)
    dist.send(tensor, 1) if rank == 0 else dist.recv(tensor, 0)
    return float(tensor.sum())


def any_source(rank: int) -> int:
    if rank:
        dist.send(torch.tensor([rank]), 0)
        return 0
    tensor, sources = torch.zeros(1, dtype=torch.int64), []
    for _ in range(dist.get_world_size() - 1):
        sources.append(dist.recv(tensor))
        assert int(tensor) == sources[-1]
    return sum(sources)


def polls(rank: int) -> float:
    tensor = torch.zeros(2)
    if rank == 0:
        time.sleep(0.05)
        dist.send(torch.ones(2), 1)
        return 1.0
    work = dist.irecv(tensor, 0)
    assert work is not None
    while not work.is_completed():
        pass
    return float(tensor[0])


def store(rank: int) -> list[Any]:
    shared = dist.PrefixStore("test", dist.distributed_c10d._get_default_store())
    count = shared.add("count", rank + 1)
    shared.set(f"key{rank}", f"value{rank}")
    shared.wait([f"key{r}" for r in range(4)], timedelta(seconds=10))
    with contextlib.suppress(dist.DistStoreError):
        shared.wait(["nobody sets this"], timedelta(milliseconds=50))
        raise AssertionError("it waited for what was not there")
    assert 1 <= count <= 10
    return [shared.get(f"key{r}") for r in range(4)]


def meta(rank: int) -> list[int]:
    tensor = torch.empty(1 << 20, 4, device="meta")
    dist.all_reduce(tensor)
    dist.send(tensor, 1) if rank == 0 else dist.recv(tensor, 0)
    return list(tensor.shape)


@pytest.mark.parametrize(
    ("program", "size"), [(ring, 4), (ring, 2), (collectives, 4), (quiet, 2), (meta, 2)]
)
def test_results_and_record_are_those_of_threads(program: Program, size: int) -> None:
    simulated = simulate(lambda rank, _: program(rank), size)
    assert not simulated.findings
    values, broker = play(program, size)
    assert broker.findings == []
    assert len(values) == size
    for one, other in zip(simulated.returns, values, strict=True):
        torch.testing.assert_close(other, one, rtol=0, atol=0)
    for claimed, seen in (
        (Trace(simulated.record), Trace(broker.record)),
        (Trace(whole(simulated.record)), Trace(whole(broker.record))),
    ):
        for name in (
            *("bytes_sent", "bytes_received", "messages_sent", "messages_received", "traffic"),
            *("collectives", "rounds", "complete"),
        ):
            assert getattr(claimed, name) == getattr(seen, name), name
        assert sum(seen.bytes_sent) > 0
        assert seen.complete


def test_what_does_not_count_is_kept_apart_and_found_in_the_whole() -> None:
    _, broker = play(quiet, 2)
    assert Trace(broker.record).bytes_sent == [40, 0]
    assert Trace(whole(broker.record)).bytes_sent == [80, 0]


def test_any_source_polls_and_the_store() -> None:
    assert play(any_source)[0] == [6, 0, 0, 0]
    values, broker = play(polls, 2)
    assert values == [1.0, 1.0]
    assert broker.record.order_dependent
    assert play(store)[0] == [[b"value0", b"value1", b"value2", b"value3"]] * 4


def test_operations_run_in_posting_order_where_nccl_does() -> None:
    def program(rank: int) -> None:
        out, other = torch.zeros(1), 1 - rank
        works = [dist.isend(torch.ones(1), other), dist.irecv(out, other)]
        for work in works:
            assert work is not None
            work.wait()

    assert kinds(play(program, 2)[1]) == []
    assert kinds(play(program, 2, p2p="nccl")[1]) == ["deadlock"]


# Faults -------------------------------------------------------------------------------------------


def deadlock(rank: int) -> None:
    dist.send(torch.ones(1), 1 - rank)


def mismatch(rank: int) -> None:
    dist.send(torch.ones(3), 1) if rank == 0 else dist.recv(torch.ones(4), 0)


def other_collectives(rank: int) -> None:
    dist.all_reduce(torch.ones(3)) if rank == 0 else dist.barrier()


def never_received(rank: int) -> None:
    if rank == 0:
        dist.isend(torch.ones(3), 1)


def read_too_early(rank: int) -> None:
    tensor = torch.zeros(3)
    if rank == 0:
        dist.send(tensor, 1)
    else:
        dist.irecv(tensor, 0)
        tensor.sum()


def store_deadlock(rank: int) -> None:
    dist.distributed_c10d._get_default_store().get("nobody sets this")


@pytest.mark.parametrize(
    ("program", "kind", "words"),
    [
        (deadlock, "deadlock", "wait for each other"),
        (mismatch, "message_mismatch", "3"),
        (other_collectives, "collective_mismatch", "barrier"),
        (never_received, "message_not_received", "never received"),
        (read_too_early, "receive_buffer_read", "read a buffer"),
        (store_deadlock, "deadlock", "no rank can go on"),
    ],
)
def test_faults_are_found(program: Program, kind: str, words: str) -> None:
    _, broker = play(program, 2)
    assert kinds(broker)[0] == kind, broker.findings
    assert words in broker.findings[0].message


def test_forbidden_calls_are_found() -> None:
    def program(rank: int) -> None:
        dist.all_reduce(torch.ones(1))

    _, broker = play(program, 2, allow=frozenset({"p2p"}))
    assert kinds(broker)[0] == "forbidden_call"


# What no rank says --------------------------------------------------------------------------------

POST = {
    "do": "post", "kind": "send", "group": 0, "peer": 1, "shape": [2], "dtype": "float32",
    "device": "cpu", "tag": 0, "batch": -1, "location": None, "region": True,
}  # fmt: skip
CALL = {
    "kind": "all_reduce", "peer": -1, "op": "SUM", "root": -1, "items": 1, "factor": None,
    "layout": [[]], "output_numel": [2], "signature": ["(2,) float32"],
}  # fmt: skip
GROUP = {"do": "group", "name": "default", "ranks": [0, 1]}
TWO = [torch.ones(2)]


def told(frames: Sequence[bytes]) -> tuple[Broker, bytes]:
    """A broker after rank 0 has sent these bytes, one after the other's answer; what it said."""
    pairs = [socket.socketpair() for _ in range(2)]
    broker = Broker([pair[0] for pair in pairs])
    answers = b""
    with selectors.PollSelector() as selector:
        broker.register(selector)
        for frame in frames:
            pairs[0][1].sendall(frame)
            for _ in range(50):
                ready = selector.select(0.02)
                for key, mask in ready:
                    key.data(mask)
                if not ready:
                    break
            pairs[0][1].setblocking(False)
            with contextlib.suppress(BlockingIOError, ConnectionResetError):
                answers += pairs[0][1].recv(1 << 20)
            pairs[0][1].setblocking(True)
            if broker.findings:
                break
        broker.close()
    for _, end in pairs:
        end.close()
    return broker, answers


def test_what_a_rank_says_rightly_is_taken() -> None:
    broker, _ = told([wire.pack(GROUP), wire.pack(POST, TWO), wire.pack(POST | CALL, TWO)])
    assert broker.findings == []
    assert [op.kind for op in broker.record.operations] == ["send", "all_reduce"]


@pytest.mark.parametrize(
    "frame",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"TPb1" + (1 << 31).to_bytes(4) + bytes(8),
        b"TPb1" + (2).to_bytes(4) + (1 << 40).to_bytes(8) + b"{}",
        b"TPb1" + (4).to_bytes(4) + bytes(8) + b"[[[[",
        wire.pack({"do": "no such thing"}),
        wire.pack({"do": 7}),
        wire.pack({}),
        wire.pack({"do": "group", "name": "x", "ranks": [1]}),
        wire.pack({"do": "group", "name": "x", "ranks": [0, 5]}),
        wire.pack({"do": "group", "name": "x", "ranks": [0, 0]}),
        wire.pack({"do": "wait", "id": 0}),
        wire.pack({"do": "note", "id": 0}),
        wire.pack({"do": "store", "name": "set", "keys": ["a"], "value": "no hex"}),
        wire.pack({"do": "store", "name": "set", "keys": ["a" * 5000], "value": ""}),
        wire.pack({"do": "store", "name": "wait", "keys": ["a"], "seconds": "long"}),
        wire.pack({"do": "store", "name": "explode", "keys": ["a"]}),
        wire.pack(POST | {"group": 9}, TWO),
        wire.pack(POST | {"peer": 0}, TWO),
        wire.pack(POST | {"peer": 7}, TWO),
        wire.pack(POST | {"shape": [3]}, TWO),
        wire.pack(POST | {"shape": [-1]}, TWO),
        wire.pack(POST | {"shape": [1 << 60]}, TWO),
        wire.pack(POST | {"dtype": "float64"}, TWO),
        wire.pack(POST | {"dtype": "no such"}, TWO),
        wire.pack(POST | {"kind": "recv"}, TWO),
        wire.pack(POST | {"kind": "teleport"}, TWO),
        wire.pack(POST | {"batch": 3}, TWO),
        wire.pack(POST | {"tag": 1 << 80}, TWO),
        wire.pack(POST | {"location": ["file", "line", "function"]}, TWO),
        wire.pack(POST, [*TWO, *TWO]),
        wire.pack(POST, []),
        wire.pack(POST | CALL | {"root": 0}, TWO),
        wire.pack(POST | CALL | {"items": 5}, TWO),
        wire.pack(POST | CALL | {"layout": [["a"]]}, TWO),
        wire.pack(POST | CALL | {"factor": [1]}, TWO),
    ],
)  # fmt: skip
def test_what_no_rank_says_ends_the_run_and_harms_nothing(frame: bytes) -> None:
    broker, _ = told([wire.pack(GROUP), frame])
    assert [finding.ranks for finding in broker.findings[:1]] == [(0,)]
    assert "rank 0 sent what no rank sends" in broker.findings[0].message


def test_messages_that_nobody_takes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "MAX_HELD_NBYTES", 20)
    frames = [wire.pack(GROUP), *[wire.pack(POST, TWO)] * 3]
    broker, _ = told(frames)
    assert "more than 20 bytes of messages that nobody took" in broker.findings[0].message


def test_a_rank_cannot_wait_for_what_is_anothers_or_twice() -> None:
    barrier = POST | CALL | {"kind": "barrier", "items": 0, "output_numel": [], "layout": []}
    solo = {"do": "group", "name": "alone", "ranks": [0]}
    frames = [wire.pack(solo), wire.pack(barrier), wire.pack({"do": "wait", "id": 0})]
    broker, _ = told(frames)
    assert broker.findings == []
    broker, _ = told([*frames, wire.pack({"do": "wait", "id": 0})])
    assert "not posted, or twice" in broker.findings[0].message


def test_numbers_that_are_no_sum_end_the_run() -> None:
    """The engine itself fails on it: that is the rank's fault too."""
    lie = POST | CALL | {"op": "NO SUCH"}
    solo = {"do": "group", "name": "alone", "ranks": [0]}
    pair = [torch.ones(2)]
    broker, _ = told([wire.pack(solo), wire.pack(lie | {"group": 0}, pair)])
    assert "KeyError" in broker.findings[0].message
