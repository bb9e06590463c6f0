"""Worlds over several machines that torchrun started (here: two on this one)."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grader.checks import workers
from grader.harness.worlds_adopted import adoption

KIT = Path(__file__).resolve().parents[2]


def variables(rank: int, size: int, local_rank: int, local_size: int) -> dict[str, str]:
    values = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": local_rank}
    values |= {"LOCAL_WORLD_SIZE": local_size, "MASTER_PORT": 29500}
    return {name: str(value) for name, value in values.items()} | {"MASTER_ADDR": "first"}


def test_only_several_machines_are_adopted() -> None:
    assert adoption({}) is None
    assert adoption(variables(1, 8, 1, 8)) is None


@pytest.mark.parametrize(
    ("rank", "node", "role"), [(0, 0, "examiner"), (3, 0, "bystander"), (8, 1, "host")]
)
def test_who_does_what(rank: int, node: int, role: str) -> None:
    adopted = adoption(variables(rank, 16, rank % 8, 8))
    assert adopted is not None
    assert (adopted.node, adopted.role, adopted.nodes) == (node, role, 2)
    assert (adopted.host, adopted.port) == ("first", 29500)


def test_machines_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match="every machine must run as many processes"):
        adoption(variables(9, 12, 1, 8))


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    machines = [
        subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank",
             str(node), "--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port",
             str(port), str(KIT / "tests/harness/adopted_script.py")],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for node in range(2)
    ]  # fmt: skip
    try:
        outputs = [machine.communicate(timeout=240) for machine in machines]
    finally:
        for machine in machines:
            machine.kill()
    assert [machine.returncode for machine in machines] == [0, 0], outputs
    line = next(line for line in outputs[0][0].splitlines() if line.startswith("TOLD "))
    result: dict[str, Any] = json.loads(line.removeprefix("TOLD "))
    return result


def test_ranks_on_all_machines_form_one_world(told: dict[str, Any]) -> None:
    for size in (4, 3):
        status, _, _, values = told[f"rank_number {size}"]
        assert status == "ok"
        assert values == [
            [rank, size, f"payload {rank}", size * (size - 1) / 2] for rank in range(size)
        ]


def test_a_failure_on_another_machine_is_named(told: dict[str, Any]) -> None:
    status, rank, detail, _ = told["killed 4"]
    assert (status, rank) == ("died", 2)
    assert detail.startswith("rank 2: killed by SIGKILL")
    status, rank, detail, _ = told["raises 4"]
    assert (status, rank, detail) == ("raised", 2, "rank 2: KeyError: 'my own fault'")


def test_a_hang_ends_on_all_machines(told: dict[str, Any]) -> None:
    status, rank, detail, _ = told["hangs_in_python 4"]
    assert (status, rank) == ("timeout", 2)
    assert "no result within 3 seconds" in detail


def test_on_one_machine_only_the_first_process_examines(monkeypatch: pytest.MonkeyPatch) -> None:
    for rank, status in ((0, None), (3, 0)):
        for name, value in variables(rank, 4, rank, 4).items():
            monkeypatch.setenv(name, value)
        assert workers.adopt() == status


def test_without_torchrun_every_process_examines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert workers.adopt() is None
