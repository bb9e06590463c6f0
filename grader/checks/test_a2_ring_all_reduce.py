"""Checks of assignment 2: all-reduce on rings, hypercubes and two levels of a cluster."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch

from grader.checks.a1_cases import over_groups, over_worlds, random_tensor, refusal
from grader.checks.a2_cases import (
    FLOAT,
    REDUCTIONS,
    all_gather_case,
    all_reduce_case,
    hierarchical_case,
    lengths,
    op_refusals,
    over_reductions,
    reduce_scatter_case,
)
from grader.checks.causes import Bench, Case
from grader.checks.causes_a2 import ring_peers, too_many_bytes
from grader.checks.framework import CheckFailed, check
from grader.checks.world import SimulatedCluster
from grader.fabric.cluster import LinkSpec, two_level, uniform
from grader.fabric.trace import Trace

NO_THROUGHPUT = "throughput is not measured by this version"
SUM = "SUM"

Cluster = SimulatedCluster
Rng = torch.Generator


def bench(cluster: Cluster, task: str) -> Bench:
    """Runs cases of a task around one group."""
    return Bench(cluster, f"a2.{task}", "a1:collective")
