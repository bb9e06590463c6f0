"""Running a program on simulated ranks for a test, and the data that such programs start from."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from grader.fabric import SimulationResult, simulate

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.uint8)


def run(
    fn: Callable[[int, Any], Any],
    world_size: int = 4,
    args: Sequence[Any] | None = None,
    **how: Any,
) -> list[Any]:
    """What fn returned on each rank; a finding, even a warning, fails the test with its message."""
    result = simulate(fn, world_size, args, **how)
    faults = [*result.findings, *result.warnings]
    assert not faults, "\n\n".join(f"[{f.kind}] {f.message}" for f in faults)
    assert result.complete
    assert_nothing_pending(result)
    return result.returns


def assert_nothing_pending(result: SimulationResult) -> None:
    """Every operation of the run was matched, and each that was posted was waited for."""
    record = result.record
    assert all(operation.match >= 0 for operation in record.operations)
    for events in record.events:
        posted = {event.operation for event in events if event.kind == "post"}
        waited = {event.operation for event in events if event.kind == "wait"}
        assert posted == waited


def data(
    rank: int, shape: Sequence[int] = (3, 2), dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Small whole numbers, another set for each rank: sums of a few are exact in every dtype."""
    numel = math.prod(shape)
    values = (torch.arange(numel) * 7 + rank * 5 + 1) % 11
    if dtype is torch.bool:
        return (values % 3 == 0).reshape(tuple(shape))
    return values.reshape(tuple(shape)).to(dtype)


def close(actual: torch.Tensor, expected: torch.Tensor, what: str = "") -> None:
    """Equal up to rounding in float64."""
    torch.testing.assert_close(
        actual, expected, rtol=1e-11, atol=1e-12, msg=lambda text: f"{what}: {text}"
    )


def same(actual: torch.Tensor, expected: torch.Tensor, what: str = "") -> None:
    """Equal bit for bit, and of the same dtype and shape."""
    assert actual.dtype is expected.dtype, (what, actual.dtype, expected.dtype)
    assert actual.shape == expected.shape, (what, actual.shape, expected.shape)
    assert torch.equal(actual, expected), f"{what}: got {actual}, expected {expected}"
