"""What runs in a worker: a driver beside the student's code, on every rank of a simulated cluster.

Called by name through the harness; takes and returns plain data.
"""

from __future__ import annotations

import copy
import gc
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from grader.checks.context import RankContext
from grader.checks.solution import SolutionFinder, install
from grader.fabric import Finding, RankError, SimulationResult, current_runtime, region, simulate
from grader.fabric.interception import shared_store
from grader.fabric.record import Location
from grader.fabric.record_io import record_to_columns
from grader.harness import words

Driver = Callable[[RankContext, Any], Any]

#: A worker ends after one call, and what a run leaves behind is described once: to look for garbage
#: in it every 700 objects costs more than to describe it.
_OBJECTS = 200_000


def simulated(payload: dict[str, Any]) -> dict[str, Any]:
    """Run `payload["driver"]` ("a1:broadcast") on every rank, once for each of the schedules.

    payload: driver, folder, cache (a folder or None), inputs (one per rank), seed, schedules (list
    of None or numbers), p2p, allow (list or None), compute, time_limit (seconds between
    communications), device.
    Returns one dict per schedule: outputs, errors, findings, warnings, record (columns), seconds.
    """
    gc.set_threshold(max(gc.get_threshold()[0], _OBJECTS), *gc.get_threshold()[1:])
    cache = payload.get("cache")
    finder = install(Path(payload["folder"]), Path(cache) if cache else None)
    module, _, name = payload["driver"].partition(":")
    driver: Driver = getattr(importlib.import_module(f"grader.checks.drivers.{module}"), name)
    runs: list[dict[str, Any]] = []
    for schedule in payload["schedules"]:
        result = _run(driver, finder, payload, schedule)
        runs.append(_described(result, with_record=not runs))
        if result.findings:
            break
    return {"runs": runs}


def _run(
    driver: Driver, finder: SolutionFinder, payload: dict[str, Any], schedule: int | None
) -> SimulationResult:
    inputs = payload["inputs"]
    if len(payload["schedules"]) > 1:
        inputs = copy.deepcopy(inputs)
    world_size = len(inputs)

    def body(rank: int, given: Any) -> Any:
        with region(False):
            store = shared_store(current_runtime())
            context = RankContext(rank, world_size, finder, store, payload["device"])
            return driver(context, given)

    return simulate(
        body,
        world_size,
        inputs,
        seed=payload["seed"],
        schedule=schedule,
        p2p=payload["p2p"],
        allow=None if payload["allow"] is None else frozenset(payload["allow"]),
        compute=payload["compute"],
        time_limit=payload["time_limit"],
        packages=(finder.package,),
    )


def _described(result: SimulationResult, with_record: bool) -> dict[str, Any]:
    return {
        "outputs": [plain(value) for value in result.returns] if not result.errors else [],
        "errors": [_error(error) for error in result.errors.values()],
        "findings": [_finding(finding) for finding in result.findings],
        "warnings": [_finding(finding) for finding in result.warnings],
        "record": record_to_columns(result.record) if with_record else None,
        "seconds": result.seconds,
        "complete": result.complete,
    }


def plain(value: Any) -> Any:
    """Detached from autograd's graphs, no text without end; the codec judges everything else."""
    if isinstance(value, torch.Tensor):
        return value.detach()
    if type(value) is str:
        return words.clipped(value)
    if isinstance(value, dict):
        value = words.error_of(value) if "type" in value and "message" in value else value
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(plain(item) for item in value)
    return value


def _place(location: Location | None) -> list[Any] | None:
    return None if location is None else [location.file, location.line, location.function]


def _error(error: RankError) -> dict[str, Any]:
    return {
        "rank": error.rank,
        "type": words.name(error.type),
        "message": error.message[:4000],
        "location": _place(error.location),
        "traceback": error.traceback[-6000:],
        "bases": words.names(list(error.bases)),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "message": finding.message[:8000],
        "ranks": list(finding.ranks)[:64],
        "details": {
            key: plain(finding.details[key])
            for key in ("type", "message", "call")
            if key in finding.details
        },
    }
