"""Hundreds of worlds leave nothing behind; whatever a rank does is told in time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader.harness import Limits, WorkerServer, processes
from grader.harness.worlds import WorldOptions, run_world

pytestmark = pytest.mark.soak

KIT = Path(__file__).resolve().parents[2]
TARGETS = "tests.harness.world_targets"
WORLDS = 300
PATIENCE_SECONDS = 2.0


@pytest.fixture(scope="module")
def server() -> Iterator[WorkerServer]:
    preload = [TARGETS, "grader.harness.worlds_rank"]
    with WorkerServer(preload=preload, path=[KIT]) as running:
        running.wait_ready()
        yield running


def traces(server: WorkerServer) -> dict[str, object]:
    """What a world could leave: processes, descriptors of ours and of the server, files, shm."""
    directory = server.lend(lambda running: running.directory)
    return {
        "processes": processes.children(server.pid),
        "our descriptors": len(os.listdir("/proc/self/fd")),
        "the server's descriptors": len(os.listdir(f"/proc/{server.pid}/fd")),
        "files": [str(path) for path in Path(directory).rglob("*")],
        "shared memory": sorted(os.listdir("/dev/shm")),
        "mappings": sum("memfd" in line for line in Path("/proc/self/maps").open()),
    }


def test_worlds_in_a_row_leave_nothing(server: WorkerServer) -> None:
    before = traces(server)
    fates = {name: status for name, status, _ in FATES if status != "timeout"}
    for number in range(WORLDS):
        if number % 10:
            size = 1 + number % 5
            reply = run_world(server, f"{TARGETS}:rank_number", [number] * size)
            expected = [(rank, size, number, size * (size - 1) / 2) for rank in range(size)]
            assert reply.values == expected, reply
        else:
            name = sorted(fates)[number // 10 % len(fates)]
            reply = run_world(server, f"{TARGETS}:{name}", [None] * 3, limits=LIMITS)
            assert (reply.status, reply.rank) == (fates[name], 2), reply
    assert traces(server) == before


LIMITS = Limits(wall_seconds=60, memory_bytes=500 << 20)
FATES = [
    ("segfault", "died", 60.0),
    ("killed", "died", 60.0),
    ("leaves", "died", 60.0),
    ("raises", "raised", 60.0),
    ("floods", "flood", 60.0),
    ("allocates", "memory", 60.0),
    ("hangs_in_python", "timeout", 2.0),
    ("hangs_in_c", "timeout", 2.0),
    ("pauses", "timeout", 2.0),
]


@pytest.mark.parametrize(("name", "status", "limit"), FATES)
def test_a_rank_is_named_within_two_seconds_and_all_others_are_gone(
    server: WorkerServer, name: str, status: str, limit: float
) -> None:
    """From the limit where the limit is what ends it; else from the start of the world."""
    for _ in range(5):
        limits = Limits(wall_seconds=limit, memory_bytes=500 << 20)
        begin = time.monotonic()
        reply = run_world(server, f"{TARGETS}:{name}", [None] * 4, limits=limits)
        seconds = time.monotonic() - begin
        assert (reply.status, reply.rank) == (status, 2), reply
        over = seconds - (limit if status == "timeout" else 0.0)
        # To fill the memory takes a slow machine longer than the watchdog needs to see it.
        assert over < PATIENCE_SECONDS + 4.0 * (name == "allocates"), f"{over:.1f} s"
        assert processes.children(server.pid) == []


def test_guarded_worlds_leave_nothing_either(server: WorkerServer) -> None:
    before = traces(server)
    for _ in range(30):
        options = WorldOptions(allow="p2p")
        reply = run_world(server, f"{TARGETS}:sends_around", [None] * 4, options=options)
        assert reply.values == [603.0, 600.0, 601.0, 602.0], reply
    assert traces(server) == before


def test_two_graders_at_once_both_finish_right(tmp_path: Path) -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "grader", "check", "a1.broadcast", "a2.ring_all_reduce",
             "--solution", "reference"],
            cwd=KIT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    outputs = [process.communicate(timeout=600)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0], outputs
