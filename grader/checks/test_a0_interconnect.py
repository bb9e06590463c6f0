"""The checks of assignment 0, by what they are about."""

from __future__ import annotations

import random

import pytest

from grader.checks.a0_checks_links import *  # noqa: F403
from grader.checks.a0_checks_machine import *  # noqa: F403
from grader.checks.a0_checks_network import *  # noqa: F403
from grader.checks.settings import Settings


@pytest.fixture
def dice(settings: Settings, request: pytest.FixtureRequest) -> random.Random:
    """Random numbers for inputs: the same for the same --seed and check."""
    return random.Random(f"{settings.seed} {request.node.name}")
