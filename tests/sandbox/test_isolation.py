"""From inside the sandbox: no network, nothing of others, no write that stays, no process left."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from grader.harness import Limits, Reply, WorkerServer, processes
from grader.harness import sandbox as sandboxes
from grader.harness.sandbox import Sandbox
from grader.harness.worlds import run_world
from tests.sandbox.conftest import PROBES, ROOT, processes_of

REFUSED = "Operation not permitted"


def probe(server: WorkerServer, name: str, payload: object = None, **limits: Any) -> Reply:
    return server.call(f"{PROBES}:{name}", payload, limits=Limits(**{"wall_seconds": 20, **limits}))


def value(server: WorkerServer, name: str, payload: object = None) -> Any:
    reply = probe(server, name, payload)
    assert reply.ok, reply
    return reply.value


def test_no_network_but_a_loopback_of_its_own(server: WorkerServer, tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX) as unix,
    ):
        name, path = f"tinyparallel-{os.getpid()}", str(tmp_path / "socket")
        abstract.bind("\0" + name)
        unix.bind(path)
        for listener in (abstract, unix):
            listener.listen()
        where = {"port": tcp.getsockname()[1], "name": name, "path": path}
        found = value(server, "network", where)
    assert found.pop("interfaces") == "lo"
    assert len(found) == 9
    assert "done" not in found.values(), found
    assert value(server, "loopback") == b"hello"


def test_neither_home_nor_the_kit_nor_other_submissions_are_seen(
    server: WorkerServer, sandbox: Sandbox, tmp_path: Path
) -> None:
    (tmp_path / "another-submission.py").write_text("secret")
    visible = Path(sandbox.visible[0])
    (visible.parent.parent / "neighbour").mkdir(exist_ok=True)
    home = str(Path.home())
    folders = [home, str(ROOT), str(tmp_path), str(visible.parent), "/", "/etc", "/home", "/var"]
    seen = value(server, "view", folders)
    assert set(seen[str(ROOT)]) <= {"grader", Path(sys.prefix).name}
    assert seen[str(visible.parent)] == ["tests"]
    assert seen[str(tmp_path)] == seen["/home"] == seen["/var"] == []
    assert "shadow" not in seen["/etc"]
    assert not {"reference", "assignments", ".git"} & set(seen[str(ROOT)])
    if not Path(sys.base_prefix).is_relative_to("/usr"):
        kept = (
            {Path(sys.base_prefix).relative_to(home).parts[0]}
            if (Path(sys.base_prefix).is_relative_to(home))
            else set()
        )
        assert set(seen[home]) <= kept
    secrets = [*map(str, ROOT.glob("reference/*/*.py")), "/etc/shadow", "/etc/ssh/sshd_config"]
    assert len(secrets) > 10
    secrets += [str(Path.home() / name) for name in (".bashrc", ".gitconfig", ".ssh/id_rsa")]
    assert value(server, "readable", secrets) == []


def test_nothing_of_the_examiner_is_seen(
    server: WorkerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXPECTED_VALUES", "42")
    seen = value(server, "visible_processes")
    assert {name for _, name in seen} <= {"bwrap", "python", Path(sys.executable).name}
    assert len(seen) == 3
    assert "EXPECTED_VALUES" not in value(server, "environment")


def test_no_rights_and_no_dangerous_calls(server: WorkerServer) -> None:
    status = value(server, "status")
    assert {status[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    calls = value(server, "system_calls")
    assert set(calls.values()) == {REFUSED}, calls
    assert "done" not in value(server, "settings").values()
    assert "done" not in value(server, "server_memory").values()


def test_writes_stay_inside(server: WorkerServer, sandbox: Sandbox, tmp_path: Path) -> None:
    outside = ["/", "/usr", "/etc", "/dev", "/proc", "/sys", str(ROOT), str(ROOT / "grader")]
    outside += [sandbox.visible[0], sys.prefix, str(Path.home()), str(tmp_path)]
    answers = value(server, "writable", outside)
    # A folder in /tmp that only leads to something shown is part of the private /tmp.
    leading = {str(ROOT)} if ROOT.is_relative_to("/tmp") else set()
    assert [where for where, what in answers.items() if what == "done"] in ([], [*leading])
    inside = value(server, "writable", ["/tmp", "/dev/shm"])
    assert set(inside.values()) == {"done"}
    for folder in ("/tmp", "/dev/shm", *outside):
        assert not Path(folder, "was-here").exists()
    # and the next call starts anew
    assert value(server, "view", ["/dev/shm"]) == {"/dev/shm": []}


def test_nothing_outlives_its_call(server: WorkerServer) -> None:
    assert probe(server, "leave_behind").value == "left"
    assert len(processes.tree(server.pid)) == 3
    assert len(value(server, "visible_processes")) == 3
    seen = value(server, "view", ["/tmp", "/dev/shm"])
    assert "left" not in seen["/tmp"]
    assert seen["/dev/shm"] == []


def test_nothing_outlives_the_server(sandbox: Sandbox) -> None:
    path = Path(sandbox.visible[0]).parent
    server = WorkerServer(preload=[PROBES], path=[path], sandbox=sandbox, env={"MARK": "outlives"})
    server.wait_ready()
    directory = Path(server.lend(lambda running: running.directory))
    assert directory.is_dir()
    thread = threading.Thread(
        target=probe, args=(server, "leave_behind"), kwargs={"wall_seconds": 30}
    )
    thread.start()
    thread.join()
    assert processes_of("MARK=outlives")
    server.close()
    assert processes_of("MARK=outlives") == []
    assert not directory.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_killed_or_stopped_server_is_a_result(server: WorkerServer, number: int) -> None:
    reply = probe(server, "kill_server", int(number), wall_seconds=1)
    assert reply.status in ("died", "timeout")


def test_real_worlds_meet_inside(server: WorkerServer) -> None:
    reply = run_world(server, f"{PROBES}:gloo", [None] * 3, limits=Limits(wall_seconds=30))
    assert reply.values == [3.0] * 3, reply


def test_without_bubblewrap_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandboxes, "PROGRAM", "no-such-program")
    assert "apt install bubblewrap" in (sandboxes.unavailable() or "")
    with pytest.raises(sandboxes.SandboxUnavailable, match="apt install bubblewrap"):
        WorkerServer(sandbox=Sandbox())


def test_a_bubblewrap_that_may_not_make_namespaces_is_a_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sandboxes, "PROGRAM", str(fake))
    assert "forbids user namespaces" in (sandboxes.unavailable() or "")
