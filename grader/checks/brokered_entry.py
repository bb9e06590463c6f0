"""What runs in the process of one rank of a brokered world: a driver beside the student's code.

Drivers are those of the simulated cluster. Called by name through the harness.
"""

from __future__ import annotations

import importlib
import socket
from pathlib import Path
from typing import Any

from grader.checks.context import RankContext
from grader.checks.entry import plain
from grader.checks.solution import install
from grader.fabric import current_runtime, region
from grader.fabric.findings import SimulationAborted
from grader.fabric.interception import shared_store
from grader.fabric.remote import live
from grader.harness.worker import EXTRA_FD


def run(payload: dict[str, Any]) -> dict[str, Any]:
    """Be rank `payload["rank"]`.

    payload: driver, folder, inputs (of this rank), rank, world_size, seed, compute, allow (a list
    or None).
    Returns output, or ended: the broker has ended the run, and knows why.
    """
    finder = install(Path(payload["folder"]))
    module, _, name = payload["driver"].partition(":")
    driver = getattr(importlib.import_module(f"grader.checks.drivers.{module}"), name)
    rank, world_size = payload["rank"], payload["world_size"]

    def body() -> Any:
        with region(False):
            store = shared_store(current_runtime())
            return driver(RankContext(rank, world_size, finder, store, "cpu"), payload["inputs"])

    channel = socket.socket(fileno=EXTRA_FD)
    allow = payload["allow"]
    try:
        output = live(
            body,
            channel,
            rank,
            world_size,
            seed=payload["seed"],
            allow=None if allow is None else frozenset(allow),
            compute=payload["compute"],
        )
    except SimulationAborted:
        return {"ended": True}
    return {"output": plain(output)}
