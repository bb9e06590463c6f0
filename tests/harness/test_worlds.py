"""A world of real processes: what its ranks see, and whose fault it is when it ends."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from grader.harness import Limits, WorkerServer, processes
from grader.harness.devices import Machine
from grader.harness.worlds import WorldOptions, WorldReply, run_world

TARGETS = "tests.harness.world_targets"
KIT = Path(__file__).resolve().parents[2]
CULPRIT = 2
SHORT = Limits(wall_seconds=1.5)
LONG = Limits(wall_seconds=60)
P2P = WorldOptions(allow="p2p")


@pytest.fixture(scope="module")
def shared() -> Iterator[WorkerServer]:
    preload = [TARGETS, "grader.harness.worlds_rank"]
    with WorkerServer(preload=preload, path=[KIT]) as server:
        server.wait_ready()
        yield server


@pytest.fixture
def server(shared: WorkerServer) -> Iterator[WorkerServer]:
    """A server that has nothing below it, in memory or on disk, after each test."""
    fds = len(os.listdir("/proc/self/fd"))
    yield shared
    assert processes.children(shared.pid) == []
    assert len(os.listdir("/proc/self/fd")) == fds
    assert os.listdir(shared.lend(lambda running: running.directory)) == []


def world(
    server: WorkerServer,
    name: str,
    payloads: list[Any] | None = None,
    limits: Limits = LONG,
    options: WorldOptions | None = None,
) -> WorldReply:
    given = [None] * 4 if payloads is None else payloads
    return run_world(server, f"{TARGETS}:{name}", given, limits=limits, options=options)


def test_each_rank_gets_its_payload_and_meets_the_others(server: WorkerServer) -> None:
    reply = world(server, "rank_number", ["a", "b", "c", "d"])
    assert reply.ok, reply
    assert reply.values == [(rank, 4, "abcd"[rank], 6.0) for rank in range(4)]
    assert (reply.rank, reply.detail) == (None, "")


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_worlds_of_any_size(server: WorkerServer, size: int) -> None:
    reply = world(server, "rank_number", [None] * size)
    assert [value[:2] for value in reply.values] == [(rank, size) for rank in range(size)]


def test_a_rank_sees_the_variables_of_torchrun_and_its_cores(server: WorkerServer) -> None:
    cores = tuple(sorted(os.sched_getaffinity(0)))
    one = WorldOptions(machine=Machine(cores[:1]))
    reply = world(server, "surroundings", [None] * 2, options=one)
    for rank, value in enumerate(reply.values):
        assert value["environment"] == {
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": "2",
        }
        assert (value["cores"], value["device"], value["backend"]) == ([cores[0]], "cpu", "gloo")
    assert reply.values[0]["cwd"] != reply.values[1]["cwd"]


def test_ranks_stay_until_all_have_returned(server: WorkerServer) -> None:
    assert world(server, "last_words").ok


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("segfault", "died", "SIGSEGV"),
        ("killed", "died", "SIGKILL"),
        ("leaves", "died", "os._exit(0)"),
        ("exits", "died", "SystemExit"),
        ("raises", "raised", "my own fault"),
        ("floods", "flood", "bytes on stdout"),
        ("allocates", "memory", "MiB of memory"),
    ],
)
def test_the_rank_that_fails_is_named(
    server: WorkerServer, name: str, status: str, words: str
) -> None:
    reply = world(server, name, limits=Limits(wall_seconds=60, memory_bytes=500 << 20))
    assert (reply.status, reply.rank) == (status, CULPRIT), reply
    assert reply.detail.startswith(f"rank {CULPRIT}: ")
    assert words in reply.detail
    others = [reply.replies[rank] for rank in range(4) if rank != CULPRIT]
    assert all(other.status in ("stopped", "raised") for other in others)


@pytest.mark.parametrize("name", ["hangs_in_python", "hangs_in_c", "pauses"])
def test_the_rank_that_hangs_is_named_and_every_stack_shown(
    server: WorkerServer, name: str
) -> None:
    reply = world(server, name, limits=SHORT)
    assert (reply.status, reply.rank) == ("timeout", CULPRIT), reply
    assert reply.detail == (
        f"rank {CULPRIT}: no result within 1.5 seconds; the others wait for a message"
    )
    for rank in range(4):
        assert f"rank {rank} (" in reply.stacks
        assert "world_targets.py" in reply.replies[rank].stacks


def test_ranks_that_returned_do_not_hide_the_one_that_hangs(server: WorkerServer) -> None:
    reply = world(server, "spins_while_others_return", limits=SHORT)
    assert (reply.status, reply.rank) == ("timeout", CULPRIT)
    assert [each.status for each in reply.replies] == ["ok", "ok", "timeout", "ok"]


def test_when_all_wait_nobody_is_blamed(server: WorkerServer) -> None:
    reply = world(server, "deadlock", limits=SHORT)
    assert (reply.status, reply.rank) == ("timeout", None)
    assert "all of them wait for a message" in reply.detail
    assert reply.stacks.count("deadlock") >= 4


def test_stacks_of_the_others_are_shown_when_one_dies(server: WorkerServer) -> None:
    reply = world(server, "segfault")
    assert "Segmentation fault" in reply.stacks
    for rank in range(4):
        assert f"rank {rank} (" in reply.stacks
        told = reply.replies[rank].stacks or reply.replies[rank].error
        assert (told in ("", None)) == (rank == CULPRIT)
    assert "in meet" in reply.stacks


@pytest.mark.parametrize(
    "name", ["all_reduce", "broadcast", "barrier", "all_gather_into_tensor", "by_method"]
)
def test_forbidden_calls_are_refused_with_their_line(server: WorkerServer, name: str) -> None:
    reply = world(server, "calls_collective", [name] * 2, options=P2P)
    assert reply.status == "raised"
    assert "ForbiddenCall" in reply.detail
    assert "world_targets.py:" in reply.detail
    assert (name if name != "by_method" else "all_reduce") in reply.detail


def test_the_same_calls_pass_where_they_are_allowed(server: WorkerServer) -> None:
    assert world(server, "calls_collective", ["all_reduce"] * 2).ok


def test_a_refusal_that_was_swallowed_still_fails(server: WorkerServer) -> None:
    reply = world(server, "swallows_the_refusal", options=P2P)
    assert "ForbiddenCall: called all_reduce" in reply.detail


def test_sub_groups_are_guarded_too(server: WorkerServer) -> None:
    reply = world(server, "in_a_sub_group", options=P2P)
    assert "ForbiddenCall: called all_reduce" in reply.detail


def test_point_to_point_calls_pass_the_guard(server: WorkerServer) -> None:
    reply = world(server, "sends_around", options=P2P)
    assert reply.values == [603.0, 600.0, 601.0, 602.0], reply


def test_tensors_staged_through_the_host_come_back(server: WorkerServer) -> None:
    size = 3
    reply = world(server, "staged", [None] * size)
    assert reply.ok, reply
    for rank, value in enumerate(reply.values):
        rows = torch.arange(float(size)).repeat_interleave(2)
        assert torch.equal(value["all_reduce"], torch.full((2,), 3.0))
        assert torch.equal(value["all_gather"], rows.view(size, 2))
        assert torch.equal(value["all_gather_into_tensor"], rows)
        assert torch.equal(value["reduce_scatter_tensor"], torch.full((2,), float(size)))
        assert torch.equal(value["broadcast"], torch.full((2,), 1.0))
        assert torch.equal(value["all_to_all_single"], torch.arange(size) * 10.0 + rank)
        assert torch.equal(value["recv"], torch.full((2,), float((rank - 1) % size)))


def test_worlds_run_beside_each_other(server: WorkerServer) -> None:
    with ThreadPoolExecutor(3) as pool:
        replies = list(pool.map(lambda n: world(server, "rank_number", [n] * 3), range(3)))
    assert [[value[2] for value in reply.values] for reply in replies] == [
        [n] * 3 for n in range(3)
    ]


def test_a_world_can_be_stopped_from_outside(server: WorkerServer) -> None:
    asked = threading.Event()

    def watch(running: Any) -> None:
        if all(running.pids) and not asked.is_set():
            asked.set()
            running.stop("no longer needed")

    reply = run_world(server, f"{TARGETS}:deadlock", [None] * 2, limits=LONG, watch=watch)
    assert (reply.status, reply.rank, reply.detail) == ("stopped", None, "no longer needed")


def test_a_payload_that_cannot_be_sent_starts_nothing(server: WorkerServer) -> None:
    from grader.harness import EncodeError

    with pytest.raises(EncodeError):
        world(server, "rank_number", [object(), None])
