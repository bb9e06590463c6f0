"""The drivers of the simulated cluster, on processes; and what a failed world tells the student."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from grader.checks import problems, workers
from grader.checks.framework import CheckFailed, SolutionError, SolutionTimeout, Unimplemented
from grader.checks.real_world import RealWorld
from grader.checks.settings import Settings
from grader.checks.throughput import Plan, Throughput

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = Settings("reference", ROOT / "reference")
RING = """
import torch
import torch.distributed as dist


def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None):
    {body}
"""


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    workers.start()
    yield
    workers.stop()


def case(rank: int, task: str, ranks: list[int] | None = None) -> dict[str, Any]:
    tensor = torch.arange(5.0) + rank
    given = {"arguments": {"tensor": tensor}, "op": "SUM", "ranks": ranks, "refused": False}
    return {"task": task, "cases": [given]}


def reduced(world: RealWorld, size: int, ranks: list[int] | None = None) -> list[Any]:
    task = "a2.ring_all_reduce"
    inputs = [case(rank, task, ranks) for rank in range(size)]
    outputs = world.run("a1:collective", inputs, task=task, wall_seconds=60)
    return [None if each[0] is None else each[0]["arguments"]["tensor"] for each in outputs]


def solution(folder: Path, body: str) -> RealWorld:
    place = folder / "assignments" / "a2_ring_all_reduce"
    place.mkdir(parents=True)
    (place / "ring.py").write_text(RING.format(body=body))
    return RealWorld(Settings("assignments", folder / "assignments"), {})


@pytest.mark.parametrize("size", [1, 3, 4])
def test_the_reference_reduces_on_real_ranks(size: int) -> None:
    metrics: dict[str, Any] = {}
    for tensor in reduced(RealWorld(REFERENCE, metrics), size):
        assert torch.equal(tensor, size * torch.arange(5.0) + size * (size - 1) / 2)
    assert metrics == {"real_worlds": 1}


def test_sub_groups_keep_their_order_on_real_ranks() -> None:
    tensors = reduced(RealWorld(REFERENCE, {}), 4, ranks=[3, 1])
    assert [tensor is None for tensor in tensors] == [True, False, True, False]
    assert torch.equal(tensors[3], 2 * torch.arange(5.0) + 4)


def test_a_stub_is_not_implemented(tmp_path: Path) -> None:
    world = solution(tmp_path, 'raise NotImplementedError("a2.ring_all_reduce")')
    with pytest.raises(Unimplemented, match=r"a2\.ring_all_reduce is not implemented yet"):
        reduced(world, 2)


def test_a_stub_that_is_called_by_another_task_is_named(tmp_path: Path) -> None:
    world = solution(tmp_path, 'raise NotImplementedError("a2.ring_all_gather")')
    with pytest.raises(Unimplemented, match=r"calls a2\.ring_all_gather"):
        reduced(world, 2)


def test_an_exception_shows_its_rank_and_line(tmp_path: Path) -> None:
    world = solution(tmp_path, "raise KeyError(str(dist.get_rank()))")
    with pytest.raises(SolutionError, match=r"(?s)rank \d raised KeyError.*ring\.py"):
        reduced(world, 2)


def test_a_forbidden_call_is_a_failure_not_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckFailed, match=r"called all_reduce \(ring\.py:7\)") as failed:
        reduced(solution(tmp_path, "dist.all_reduce(tensor)"), 2)
    assert failed.value.status == "failed"


def test_a_rank_that_leaves_is_an_error_of_the_solution(tmp_path: Path) -> None:
    body = "import os; os._exit(0)"
    with pytest.raises(SolutionError, match=r"rank \d: the process left with os\._exit\(0\)"):
        reduced(solution(tmp_path, body), 2)


def test_a_hang_names_the_rank_and_shows_where_it_is(tmp_path: Path) -> None:
    body = "while dist.get_rank() == 1: pass\n    dist.recv(tensor, 1)"
    world = solution(tmp_path, body)
    task = "a2.ring_all_reduce"
    with pytest.raises(SolutionTimeout, match=r"(?s)rank 1: no result.*ring\.py") as failed:
        world.run(
            "a1:collective", [case(rank, task) for rank in range(2)], task=task, wall_seconds=1.5
        )
    assert failed.value.status == "timeout"
    _, _, stacks = failed.value.message.partition("Where each rank was:")
    files = [line for line in stacks.splitlines() if line.lstrip().startswith("File")]
    assert files and not [line for line in files if f"{ROOT}/grader/" in line], stacks


def no_award(fraction: float, message: str = "") -> None:
    raise AssertionError(f"points were cut to {fraction}: {message}")


def judged(settings: Settings, plan: Plan, award: Any = no_award) -> dict[str, Any]:
    metrics: dict[str, Any] = {}
    Throughput(settings, metrics, award).judge(
        "a2.ring_all_reduce",
        "timed:all_reduce",
        "timed:library_all_reduce",
        problems.all_reduce(2, 1 << 16, given="a2.ring_all_reduce"),
        plan,
        allow="p2p",
        baseline_name="the library",
    )
    return metrics


def test_a_throughput_check_says_what_it_measured() -> None:
    metrics = judged(REFERENCE, Plan(floor=0.0, full=1e-6, least=3, most=3))
    assert (metrics["baseline"], metrics["floor"], metrics["full"]) == ("the library", 0.0, 1e-6)
    assert metrics["pairs"] == 3 and metrics["looks"] == 1
    assert metrics["ratio_low"] <= metrics["ratio"] <= metrics["ratio_high"]
    assert metrics["seconds"] > 0 < metrics["baseline_seconds"]


def test_points_between_floor_and_full_mark_are_explained() -> None:
    given: list[tuple[float, str]] = []
    judged(
        REFERENCE,
        Plan(floor=0.0, full=1e6, least=3, most=3),
        lambda fraction, message="": given.append((fraction, message)),
    )
    ((fraction, message),) = given
    assert 0 < fraction < 1e-3
    assert "of the speed of the library" in message and "the better of two looks" in message
    assert "no points up to 0, all from 1e+06" in message


def test_a_ratio_below_the_floor_fails() -> None:
    with pytest.raises(CheckFailed, match="no points up to 100000"):
        judged(REFERENCE, Plan(floor=1e5, full=1e6, least=3, most=3, second_look=False))


@pytest.mark.parametrize("option", ["throughput", "in_process"])
def test_nothing_is_timed_when_told_so(option: str) -> None:
    settings = replace(REFERENCE, **{option: option == "in_process"})
    with pytest.raises(pytest.skip.Exception, match="throughput is not measured with --"):
        judged(settings, Plan(floor=0.0, full=1.0))


def test_more_ranks_than_gpus_are_skipped() -> None:
    with pytest.raises(pytest.skip.Exception, match="GPU"):
        judged(replace(REFERENCE, device="cuda"), Plan(floor=0.0, full=1.0))


def test_what_is_delivered_is_a_plain_tensor_of_the_right_kind() -> None:
    from grader.checks.real_entry import deliver

    class Lying(torch.Tensor):
        pass

    buffer = torch.zeros(2)
    deliver(buffer, torch.nn.Parameter(torch.ones(2)), "the output")
    assert buffer.tolist() == [1, 1]
    with pytest.raises(TypeError, match=r"the output is a .*Lying; expected a plain torch\.Tensor"):
        deliver(buffer, torch.ones(2).as_subclass(Lying), "the output")
    with pytest.raises(ValueError, match=r"shape \(3,\).*expected \(2,\)"):
        deliver(buffer, torch.ones(3), "the output")
    with pytest.raises(ValueError, match=r"torch\.float64.*torch\.float32"):
        deliver(buffer, torch.ones(2, dtype=torch.float64), "the output")
