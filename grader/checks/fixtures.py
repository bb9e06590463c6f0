"""Fixtures that run solutions."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from grader.checks import workers
from grader.checks.framework import Award
from grader.checks.real_world import RealWorld
from grader.checks.settings import Settings
from grader.checks.throughput import Throughput
from grader.checks.world import SimulatedCluster


@pytest.fixture(scope="session")
def code_cache() -> Iterator[str]:
    """A folder for the compiled files of the solution, gone after the session."""
    with tempfile.TemporaryDirectory(prefix="tinyparallel-code-") as folder:
        yield folder


@pytest.fixture
def cluster(settings: Settings, metrics: dict[str, Any], code_cache: str) -> SimulatedCluster:
    """A simulated cluster that runs the solution under test in workers."""
    return SimulatedCluster(settings, metrics, code_cache)


@pytest.fixture
def real_world(settings: Settings, metrics: dict[str, Any], code_cache: str) -> RealWorld:
    """Worlds of real processes that run the solution under test."""
    return RealWorld(settings, metrics, code_cache)


@pytest.fixture
def throughput(
    settings: Settings, metrics: dict[str, Any], award: Award, code_cache: str
) -> Throughput:
    """Times the solution under test against a baseline; gives points by the ratio."""
    return Throughput(settings, metrics, award, code_cache)


@pytest.fixture
def rng(settings: Settings, request: pytest.FixtureRequest) -> torch.Generator:
    """Random numbers for inputs: the same for the same --seed and check."""
    generator = torch.Generator()
    name: str = request.node.name
    generator.manual_seed(settings.seed * 1_000_003 + sum(map(ord, name)))
    return generator


@pytest.fixture(scope="session", autouse=True)
def _end_workers() -> Iterator[None]:
    started_outside = workers.running()
    yield
    if not started_outside:
        workers.stop()
