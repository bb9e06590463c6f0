"""Processes of a training run, as torchrun would start them, but left alone when one dies."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SMALL = {
    "layers": 2, "hidden": 16, "heads": 2, "sequence": 16, "batch": 8, "microbatches": 2,
    "device": "cpu", "dtype": "float64",
}  # fmt: skip

_PROGRAM = """
import json, sys
from reference.a9_hybrid_parallel.config import TrainConfig
from reference.a9_hybrid_parallel.train import train
print(json.dumps(train(TrainConfig(**json.loads(sys.argv[1])))))
"""


def free_port() -> int:
    """A port that nobody listens on at the moment."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def start(ranks: int, command: list[str]) -> list[subprocess.Popen[str]]:
    """One process a rank, with the variables of torchrun."""
    common = {
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    return [
        subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env=os.environ | common | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]


def curve(ranks: int, **options: Any) -> list[float]:
    """The losses of a run that comes to its end; the same on all ranks."""
    config = json.dumps({**SMALL, "quiet": True, **options})
    results = []
    for process in start(ranks, ["-c", _PROGRAM, config]):
        out, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors[-3000:]
        results.append(json.loads(out.splitlines()[-1]))
    assert all(result == results[0] for result in results)
    losses: list[float] = results[0]
    return losses


def arguments(**options: Any) -> list[str]:
    """The command line of `train` for these options."""
    words = ["-m", "reference.a9_hybrid_parallel.train"]
    for name, value in {**SMALL, **options}.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif value is not False:
            words += [flag, str(value)]
    return words
