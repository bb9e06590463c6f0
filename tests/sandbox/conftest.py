"""A sandboxed fork server; the tests of this folder are skipped where there can be none."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader.harness import WorkerServer, processes
from grader.harness.sandbox import Sandbox, unavailable

ROOT = Path(__file__).resolve().parents[2]
PROBES = "tests.sandbox.probes"


@pytest.fixture(scope="session")
def usable() -> None:
    """Skip where there can be no sandbox."""
    reason = unavailable()
    if reason is not None:
        pytest.skip(f"no sandbox here: {reason}")


@pytest.fixture(scope="session")
def sandbox(usable: None, tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    """Shows the probes, and little room."""
    folder = tmp_path_factory.mktemp("visible") / "tests"
    (folder / "sandbox").mkdir(parents=True)
    for name in ("__init__.py", "sandbox/__init__.py", "sandbox/probes.py"):
        source = ROOT / "tests" / name
        (folder / name).write_text(source.read_text() if source.exists() else "")
    return Sandbox(
        visible=(str(folder),), disk_bytes=64 << 20, shm_bytes=16 << 20, files=2000, numbers=400
    )


@pytest.fixture(scope="session")
def shared(sandbox: Sandbox) -> Iterator[WorkerServer]:
    path = Path(sandbox.visible[0]).parent
    with WorkerServer(preload=[PROBES], path=[path], sandbox=sandbox) as server:
        server.wait_ready()
        yield server


@pytest.fixture
def server(shared: WorkerServer) -> Iterator[WorkerServer]:
    """A sandboxed server that, after each test, still answers and has nothing left inside."""
    yield shared
    reply = shared.call(f"{PROBES}:echo", "still there")
    assert (reply.status, reply.value) == ("ok", "still there"), reply
    # bubblewrap outside, its other half inside, the fork server
    assert len(processes.tree(shared.pid)) == 3
    left = shared.call(f"{PROBES}:view", ["/tmp", "/dev/shm"]).value
    assert left["/dev/shm"] == []
    # Folders that lead to what is shown inside: the kit, Python, the probes, may lie in /tmp.
    shown = {
        Path(path).parts[2] for path in (ROOT, sys.prefix) if Path(path).is_relative_to("/tmp")
    }
    assert [
        name
        for name in left["/tmp"]
        if not name.startswith(("tinyparallel-", "pytest-")) and name not in shown
    ] == []


def processes_of(mark: str) -> list[int]:
    """Processes of this machine that have `mark` in their environment."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark.encode() in Path("/proc", name, "environ").read_bytes():
                found.append(int(name))
        except OSError:
            continue
    return found
