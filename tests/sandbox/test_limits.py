"""Bombs and floods end within their limits, by name; the next call works and nothing is left."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from grader.harness import Limits, Reply, WorkerServer
from grader.harness.sandbox_cgroup import Cgroup
from tests.sandbox.conftest import PROBES

TIGHT = Limits(wall_seconds=20, memory_bytes=512 << 20, processes=24)


def bomb(server: WorkerServer, name: str, payload: object = None, limits: Limits = TIGHT) -> Reply:
    began = time.monotonic()
    reply = server.call(f"{PROBES}:{name}", payload, limits=limits)
    assert time.monotonic() - began < limits.wall_seconds + 20
    return reply


def test_fork_bomb(server: WorkerServer) -> None:
    reply = bomb(server, "fork_bomb")
    assert reply.status == "died"
    assert "processes at once; the limit is 24" in reply.detail


def test_processes_and_threads_have_a_limit_that_no_watchdog_keeps(server: WorkerServer) -> None:
    release = tuple(map(int, os.uname().release.split(".")[:2]))
    if os.geteuid() == 0 and release < (6, 14):
        pytest.skip("root has no such limit before Linux 6.14")
    # Numbers below 300 are given out once only.
    assert 50 < bomb(server, "threads_bomb").value < 400


@pytest.mark.parametrize(
    ("name", "payload"),
    [("memory_bomb", None), ("memory_of_many", 12), ("shared_memory_bomb", None)],
)
def test_memory_bombs(server: WorkerServer, name: str, payload: object) -> None:
    reply = bomb(server, name, payload)
    assert reply.status == "memory", reply
    assert "MiB of memory; the limit is 512 MiB" in reply.detail


@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm"])
def test_disk_bomb(server: WorkerServer, folder: str) -> None:
    reply = bomb(server, "disk_bomb", folder)
    assert reply.status == "raised"
    assert "No space left on device" in reply.detail


def test_one_file_has_a_limit_of_its_own(server: WorkerServer) -> None:
    limits = Limits(wall_seconds=20, file_bytes=4 << 20)
    reply = bomb(server, "disk_bomb", "/tmp", limits)
    assert reply.status in ("raised", "died")
    assert "File too large" in reply.detail or "SIGXFSZ" in reply.detail


def test_files_bomb(server: WorkerServer) -> None:
    reply = bomb(server, "files_bomb")
    assert reply.status == "died"
    assert "files at once; the limit is 2000" in reply.detail


def test_descriptors_bomb(server: WorkerServer) -> None:
    assert bomb(server, "descriptors_bomb").value <= 4096


def test_output_flood(server: WorkerServer) -> None:
    reply = bomb(server, "flood")
    assert reply.status == "flood"
    assert len(reply.output) < 2 << 20


def test_cpu_time_of_all_processes_counts(server: WorkerServer) -> None:
    limits = Limits(wall_seconds=30, cpu_seconds=1.0)
    reply = bomb(server, "burn", limits=limits)
    assert reply.status == "died"
    assert "s of CPU time; the limit is 1 s" in reply.detail


@pytest.mark.parametrize("names", [["fork_bomb", "memory_bomb", "files_bomb", "flood"]])
def test_one_bomb_after_the_other(server: WorkerServer, names: Sequence[str]) -> None:
    replies = [bomb(server, name).status for name in names]
    assert replies == ["died", "memory", "died", "flood"]


# -- cgroups, where this user may make them: on a folder that looks like one


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    own = tmp_path / "cgroup" / "user" / "session"
    own.mkdir(parents=True)
    (own / "cgroup.controllers").write_text("cpu memory pids\n")
    (own / "cgroup.subtree_control").write_text("memory pids\n")
    (tmp_path / "membership").write_text("0::/user/session\n")
    return tmp_path


def made(tree: Path) -> Cgroup | None:
    return Cgroup.make(1 << 30, 64, root=tree / "cgroup", membership=tree / "membership")


def test_a_cgroup_bounds_memory_and_processes(tree: Path) -> None:
    group = made(tree)
    assert group is not None
    assert group.folder.parent == tree / "cgroup" / "user" / "session"
    limits = {name: (group.folder / name).read_text() for name in ("memory.max", "pids.max")}
    assert limits == {"memory.max": str(1 << 30), "pids.max": "64"}
    command = group.started(["bwrap", "true"])
    assert command[3:] == [str(group.folder / "cgroup.procs"), "bwrap", "true"]


def test_controllers_are_handed_down(tree: Path) -> None:
    control = tree / "cgroup" / "user" / "session" / "cgroup.subtree_control"
    control.write_text("memory\n")
    assert made(tree) is not None
    assert control.read_text() == "+pids"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("membership", "5:memory:/old\n"),
        ("cgroup/user/session/cgroup.controllers", "cpu\n"),
    ],
)
def test_without_controllers_there_is_no_cgroup(tree: Path, file: str, text: str) -> None:
    (tree / file).write_text(text)
    assert made(tree) is None


def test_the_end_of_a_cgroup_kills_and_removes_it(tree: Path) -> None:
    group = made(tree)
    assert group is not None
    for file in group.folder.iterdir():  # the kernel's own files go with the folder
        file.unlink()
    killed = group.folder / "cgroup.kill"
    group.end()
    assert killed.read_text() == "1" or not group.folder.exists()
