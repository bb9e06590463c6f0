"""Ranks that do not agree, memory that is not contiguous, calls that are forbidden."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.fabric.programs import assert_clean, line_of, the_finding

# Mismatches -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("received", "text"),
    [
        (torch.empty(3), "16 B sent, 12 B expected"),
        (torch.empty(4, dtype=torch.int32), "float32 sent, int32 expected"),
        (torch.empty(4, device="meta"), "sent from cpu, received on meta"),
    ],
)
def test_sender_and_receiver_that_disagree(received: torch.Tensor, text: str) -> None:
    def program(rank: int, _: Any) -> None:
        if rank == 0:
            dist.send(torch.ones(4), 1)
        else:
            dist.recv(received, 0)

    finding = the_finding(program)
    assert finding.kind == "message_mismatch"
    assert text in finding.message
    assert "rank 0 sends (4,) float32 to rank 1 at test_findings_agreement.py:" in finding.message
    assert "rank 1 receives" in finding.message


def test_another_shape_of_the_same_size_is_a_match() -> None:
    def program(rank: int, _: Any) -> list[list[float]]:
        got = torch.empty(2, 2)
        if rank == 0:
            dist.send(torch.arange(4.0), 1)
        else:
            dist.recv(got, 0)
        return got.tolist()

    assert assert_clean(program).returns[1] == [[0.0, 1.0], [2.0, 3.0]]


@pytest.mark.parametrize(
    ("on_first", "on_second", "text"),
    [
        (lambda: dist.barrier(), lambda: dist.all_reduce(torch.ones(1)), "barrier and all_reduce"),
        (
            lambda: dist.all_reduce(torch.ones(2)),
            lambda: dist.all_reduce(torch.ones(3)),
            "all_reduce of (2,) float32 and of (3,) float32",
        ),
        (
            lambda: dist.all_reduce(torch.ones(2)),
            lambda: dist.all_reduce(torch.ones(2, dtype=torch.float64)),
            "all_reduce of (2,) float32 and of (2,) float64",
        ),
        (
            lambda: dist.all_reduce(torch.ones(2)),
            lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.MAX),
            "op SUM and with op MAX",
        ),
        (
            lambda: dist.broadcast(torch.ones(2), 0),
            lambda: dist.broadcast(torch.ones(2), 1),
            "root 0 and with root 1",
        ),
    ],
)
def test_ranks_that_call_different_collectives(
    on_first: Callable[[], None], on_second: Callable[[], None], text: str
) -> None:
    def program(rank: int, _: Any) -> None:
        (on_second if rank else on_first)()

    finding = the_finding(program)
    assert finding.kind == "collective_mismatch"
    assert text in finding.message
    assert set(finding.ranks) == {0, 1} and len(finding.locations) == 2


def test_different_collectives_in_different_groups_are_fine() -> None:
    def program(rank: int, _: Any) -> float:
        groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        tensor = torch.tensor([float(rank)])
        if rank < 2:
            dist.all_reduce(tensor, group=groups[0])
        else:
            dist.broadcast(tensor, 3, group=groups[1])
        return tensor.item()

    assert assert_clean(program, 4).returns == [1.0, 1.0, 3.0, 3.0]


def test_uneven_splits_that_do_not_fit_are_found() -> None:
    def program(rank: int, _: Any) -> None:
        splits = [1, 2] if rank == 0 else [1, 1]
        dist.all_to_all_single(torch.empty(2), torch.ones(sum(splits)), [1, 1], splits)

    finding = the_finding(program)
    assert finding.kind == "collective_mismatch"
    assert "brings 2 elements from group rank 0 where group rank 1 expects 1" in finding.message


# Contiguity -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [lambda: torch.ones(4, 4)[:, :2], lambda: torch.ones(1).expand(4), lambda: torch.ones(8)[::2]],
)
@pytest.mark.parametrize("call", [dist.all_reduce, lambda t: dist.broadcast(t, 0)])
def test_strided_and_expanded_tensors_are_refused(
    make: Callable[[], torch.Tensor], call: Callable[[torch.Tensor], None]
) -> None:
    finding = the_finding(lambda rank, _: call(make()))
    assert finding.kind == "non_contiguous"
    assert "is not contiguous (shape" in finding.message and "strides" in finding.message


def test_strided_tensors_are_refused_point_to_point() -> None:
    def program(rank: int, _: Any) -> None:
        if rank == 0:
            dist.send(torch.ones(4, 4).t(), 1)
        else:
            dist.recv(torch.empty(4, 4), 0)

    assert the_finding(program).kind == "non_contiguous"


def test_dense_tensors_in_one_memory_order_may_be_all_reduced() -> None:
    def program(rank: int, _: Any) -> bool:
        tensor = torch.arange(6.0).view(2, 3).t()
        dist.all_reduce(tensor)
        return torch.equal(tensor, 2 * torch.arange(6.0).view(2, 3).t())

    assert assert_clean(program).returns == [True, True]


def test_dense_tensors_in_different_memory_orders_are_found() -> None:
    def program(rank: int, _: Any) -> None:
        dist.all_reduce(torch.ones(3, 3) if rank else torch.ones(3, 3).t())

    finding = the_finding(program)
    assert finding.kind == "collective_mismatch" and "strides" in finding.message


def test_contiguous_slices_are_fine() -> None:
    def program(rank: int, _: Any) -> float:
        tensor = torch.ones(4, 4)
        dist.all_reduce(tensor[1:3])
        return tensor.sum().item()

    assert assert_clean(program).returns == [24.0, 24.0]


# Calls that a task forbids --------------------------------------------------------------------


def test_a_forbidden_collective_is_named_with_its_line() -> None:
    finding = the_finding(_calls_all_reduce, allow={"p2p"})
    assert finding.kind == "forbidden_call"
    line = line_of(_calls_all_reduce, "call")
    assert (
        f"rank 0 called all_reduce at test_findings_agreement.py:{line}, which this task forbids"
        in finding.message
    )


def _calls_all_reduce(rank: int, _: Any) -> None:
    dist.all_reduce(torch.ones(2))  # call


def test_object_collectives_and_the_store_are_no_way_around() -> None:
    def objects(rank: int, _: Any) -> None:
        dist.all_gather_object([None, None], rank)

    def store(rank: int, _: Any) -> None:
        from torch.distributed.distributed_c10d import _get_default_store

        _get_default_store().set(str(rank), "x")

    assert the_finding(objects, allow={"p2p"}).kind == "forbidden_call"
    assert the_finding(store, allow={"p2p"}).details["call"] == "store.set"


def test_point_to_point_calls_and_groups_are_allowed() -> None:
    def program(rank: int, _: Any) -> float:
        group = dist.new_group([0, 1])
        got = torch.empty(1)
        if rank == 0:
            dist.send(torch.full((1,), 9.0), group=group, group_dst=1)
        else:
            dist.recv(got, group=group, group_src=0)
        return got.item() if rank else 0.0

    assert assert_clean(program, allow={"p2p"}).returns == [0.0, 9.0]
