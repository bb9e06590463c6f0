"""The one worker server of a run.

The command line starts it before pytest and torch are imported here, so that it imports torch
meanwhile; fixtures ask for it with `server()`, which starts it when nobody has.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grader.harness import Limits, WorkerServer
    from grader.harness.sandbox import Sandbox
    from grader.harness.worlds import WorldOptions
    from grader.harness.worlds_adopted import AdoptedMachines
    from grader.harness.worlds_reply import WorldReply

DRIVERS = Path(__file__).parent / "drivers"
#: Drivers that import half of torch, and the assignment that needs them.
DEAR = {"a9_train": "a9"}

#: A brokered world of more ranks shares these out by chance.
RANK_SERVERS = 4

_server: WorkerServer | None = None
_rank_servers: list[WorkerServer] = []
_machines: AdoptedMachines | None = None
_sandbox: Sandbox | None = None
_preload: list[str] = []


def preload(keys: Iterable[str] | None = None) -> list[str]:
    """What a server imports before the first fork, so that no task waits for it.

    keys: assignments that will be graded, "a1"; `None` for all.
    """
    wanted = None if keys is None else set(keys)
    drivers = sorted(file.stem for file in DRIVERS.glob("[a-z]*.py"))
    return [
        *(f"grader.checks.{name}" for name in ("entry", "real_entry", "brokered_entry")),
        *(
            f"grader.checks.drivers.{name}"
            for name in drivers
            if wanted is None or name not in DEAR or DEAR[name] in wanted
        ),
    ]


def use_sandbox(folder: Path) -> None:
    """Let the server run in a sandbox that shows this solution. Raises `CannotRun`."""
    global _sandbox
    from grader.checks.sandboxed import sandbox_for

    _sandbox = sandbox_for(folder)


def sandbox() -> Sandbox | None:
    """The sandbox that the server runs in, if it does."""
    return _sandbox


def rank_servers() -> list[WorkerServer]:
    """The servers of a brokered world: each in a sandbox of its own, apart from all others."""
    from grader.harness import WorkerServer

    if _sandbox is None:
        raise RuntimeError("a brokered world needs a sandbox")
    while len(_rank_servers) < RANK_SERVERS:
        _rank_servers.append(WorkerServer(preload=_preload, sandbox=_sandbox))
    return _rank_servers


def start(keys: Iterable[str] | None = None) -> None:
    """Start the server now; returns at once. Does nothing when it runs already.

    keys: assignments that will be graded (see `preload`).
    """
    global _server, _preload
    if _server is None:
        from grader.harness import WorkerServer

        _preload = preload(keys)
        _server = WorkerServer(preload=_preload, sandbox=_sandbox)


def running() -> bool:
    """Whether somebody has started the server."""
    return _server is not None


def server() -> WorkerServer:
    """The running server."""
    start()
    assert _server is not None
    return _server


def adopt() -> int | None:
    """Take the part that `torchrun` gave this process, if it did.

    None: go on with the command, as the one examiner. Else the exit status of a process that has
    served the examiner, until it ended, or had nothing to do.
    """
    global _machines
    if not {"RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE"} <= os.environ.keys():
        return None
    from grader.harness.worlds_adopted import AdoptedMachines, adoption

    adopted = adoption()
    if adopted is None:  # one machine: its ranks are forked by the examiner
        return None if os.environ["RANK"] == "0" else 0
    if adopted.role == "bystander":
        return AdoptedMachines(adopted, None).serve()
    machines = AdoptedMachines(adopted, server())
    if adopted.role == "host":
        try:
            return machines.serve()
        finally:
            stop()
    _machines = machines
    return None


def run_world(
    target: str, payloads: Sequence[Any], *, limits: Limits, options: WorldOptions
) -> WorldReply:
    """A world on this machine, or spread over those that `torchrun` started."""
    if _machines is not None:
        return _machines.run_world(target, payloads, limits=limits, options=options)
    from grader.harness import worlds

    return worlds.run_world(server(), target, payloads, limits=limits, options=options)


def stop() -> None:
    """End the servers; the next `server()` starts another."""
    global _server, _machines, _sandbox
    _sandbox = None
    while _rank_servers:
        _rank_servers.pop().close()
    if _machines is not None:
        _machines.close()
        _machines = None
    if _server is not None:
        _server.close()
        _server = None
