"""Collectives in flight: handles, several at once, coalesced, and without values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _coalescing_manager

from tests.fabric.ranks import data, run, same

#: The older names of the same calls are what most programs use.
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")

P = 4

# Several at once, and handles ---------------------------------------------------------------------


def test_several_collectives_in_flight_complete_in_any_order_of_waiting() -> None:
    def program(rank: int, _: Any) -> None:
        tensors = [torch.full((2,), float(rank + i)) for i in range(4)]
        works = [dist.all_reduce(t, async_op=True) for t in tensors]
        barrier = dist.barrier(async_op=True)
        for work in reversed(works):
            assert work is not None
            work.wait()
        barrier.wait()
        for i, tensor in enumerate(tensors):
            same(tensor, torch.full((2,), 3.0 + 3 * i))

    run(program, 3)


def test_a_handle_offers_its_future_and_result() -> None:
    def program(rank: int, _: Any) -> None:
        tensor = torch.tensor([float(rank)])
        work = dist.all_reduce(tensor, async_op=True)
        assert work is not None
        doubled = work.get_future().then(lambda future: future.value()[0] * 2)
        assert doubled.wait().item() == 6.0
        assert work.is_success() and work.exception() is None
        assert work.result()[0] is tensor

    run(program, 3)


def test_polling_a_handle_lets_the_other_ranks_get_there() -> None:
    def program(rank: int, _: Any) -> int:
        tensor = torch.tensor([float(rank)])
        work = dist.all_reduce(tensor, async_op=True)
        assert work is not None
        polls = 0
        while not work.is_completed():
            polls += 1
        assert tensor.item() == 3.0
        return polls

    run(program, 3)


@pytest.mark.parametrize("async_ops", [False, True])
def test_coalescing_manager(async_ops: bool) -> None:
    def program(rank: int, _: Any) -> None:
        sums = [torch.full((n,), float(rank)) for n in (1, 2, 3)]
        with _coalescing_manager(async_ops=async_ops) as manager:
            for tensor in sums:
                dist.all_reduce(tensor)
        manager.wait()
        for tensor in sums:
            same(tensor, torch.full_like(tensor, 3.0))

        outputs = [torch.empty(3 * n) for n in (1, 2)]
        with _coalescing_manager(async_ops=async_ops) as manager:
            for n, output in zip((1, 2), outputs, strict=True):
                dist.all_gather_into_tensor(output, data(rank, (n,)))
        manager.wait()
        for n, output in zip((1, 2), outputs, strict=True):
            same(output, torch.cat([data(r, (n,)) for r in range(3)]))

        shards = [torch.empty(n) for n in (1, 2)]
        with _coalescing_manager(async_ops=async_ops) as manager:
            for n, shard in zip((1, 2), shards, strict=True):
                dist.reduce_scatter_tensor(shard, data(rank, (3 * n,)))
        manager.wait()
        for n, shard in zip((1, 2), shards, strict=True):
            total = torch.stack([data(r, (3 * n,)) for r in range(3)]).sum(0)
            same(shard, total.chunk(3)[rank])

    run(program, 3)


def test_coalescing_manager_with_a_device() -> None:
    def program(rank: int, _: Any) -> None:
        a, b = torch.tensor([float(rank)]), torch.tensor([float(rank), 1.0])
        with _coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
            dist.all_reduce(a)
            dist.all_reduce(b)
        manager.wait()
        assert a.tolist() == [3.0] and b.tolist() == [3.0, 3.0]

    run(program, 3)


@pytest.mark.filterwarnings("ignore:.*will be deprecated:FutureWarning")
def test_coalesced_forms() -> None:
    def program(rank: int, _: Any) -> None:
        tensors = [torch.tensor([float(rank)]), torch.tensor([1.0, float(rank)])]
        dist.all_reduce_coalesced(tensors)
        assert [t.tolist() for t in tensors] == [[3.0], [3.0, 3.0]]
        outputs = [[torch.empty(1), torch.empty(2)] for _ in range(3)]
        dist.all_gather_coalesced(outputs, [data(rank, (1,)), data(rank, (2,))])
        for source, (one, two) in enumerate(outputs):
            same(one, data(source, (1,)))
            same(two, data(source, (2,)))

    run(program, 3)


@pytest.mark.parametrize("schedule", [1, 2, 3])
def test_the_order_of_the_ranks_changes_nothing(schedule: int) -> None:
    def program(rank: int, _: Any) -> torch.Tensor:
        torch.manual_seed(rank)
        x = torch.randn(8)
        for _ in range(3):
            dist.all_reduce(x, dist.ReduceOp.AVG)
            x += torch.randn(8)
            output = torch.empty_like(x)
            dist.all_to_all_single(output, x)
            x = output
        return x

    for first, other in zip(run(program, P), run(program, P, schedule=schedule), strict=True):
        same(other, first)


def test_meta_tensors_have_sizes_but_no_values() -> None:
    def program(rank: int, _: Any) -> tuple[int, ...]:
        big = torch.empty(1 << 40, device="meta")
        dist.all_reduce(big)
        shard = torch.empty(1 << 38, device="meta")
        dist.reduce_scatter_tensor(shard, big)
        dist.all_gather_into_tensor(big, shard)
        outputs = [torch.empty(5, device="meta") for _ in range(P)]
        dist.all_gather(outputs, torch.empty(5, device="meta"))
        return tuple(big.shape)

    assert run(program, P, compute=True) == [(1 << 40,)] * P
