"""Every collective of torch.distributed, in each form of its API, against plain tensor code."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.fabric.ranks import FLOATS, INTEGERS, data, run, same

#: The older names of the same calls are what most programs use.
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")

P = 4
DTYPES = (*FLOATS, *INTEGERS, torch.bool)
BITWISE: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}
ARITHMETIC: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "SUM": torch.add,
    "PRODUCT": torch.mul,
    "MAX": torch.maximum,
    "MIN": torch.minimum,
}


def finish(work: dist.Work | None, async_op: bool) -> None:
    """What a program does with the result of a call: wait for it if there is anything to wait."""
    if async_op:
        assert work is not None
        work.wait()
        assert work.is_completed()
    else:
        assert work is None


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def async_op(request: pytest.FixtureRequest) -> bool:
    """Whether the call returns a handle."""
    return bool(request.param)


# Values, in every form ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_data_movement_of_every_dtype(dtype: torch.dtype, async_op: bool) -> None:
    def program(rank: int, _: Any) -> None:
        mine = data(rank, dtype=dtype)
        everyone = [data(r, dtype=dtype) for r in range(P)]

        tensor = mine.clone()
        finish(dist.broadcast(tensor, src=2, async_op=async_op), async_op)
        same(tensor, everyone[2], "broadcast")

        listed = [torch.empty_like(mine) for _ in range(P)]
        finish(dist.all_gather(listed, mine, async_op=async_op), async_op)
        same(torch.stack(listed), torch.stack(everyone), "all_gather")

        joined = mine.new_empty(3 * P, 2)
        finish(dist.all_gather_into_tensor(joined, mine, async_op=async_op), async_op)
        same(joined, torch.cat(everyone), "all_gather_into_tensor, concatenated")

        stacked = mine.new_empty(P, 3, 2)
        finish(dist.all_gather_into_tensor(stacked, mine, async_op=async_op), async_op)
        same(stacked, torch.stack(everyone), "all_gather_into_tensor, stacked")

        at_root = [torch.empty_like(mine) for _ in range(P)] if rank == 1 else None
        finish(dist.gather(mine, at_root, dst=1, async_op=async_op), async_op)
        if at_root is not None:
            same(torch.stack(at_root), torch.stack(everyone), "gather")

        received = torch.empty_like(mine)
        shares = [data(10 + r, dtype=dtype) for r in range(P)] if rank == 3 else None
        finish(dist.scatter(received, shares, src=3, async_op=async_op), async_op)
        same(received, data(10 + rank, dtype=dtype), "scatter")

        exchanged = mine.new_empty(P, 2)
        finish(
            dist.all_to_all_single(exchanged, data(rank, (P, 2), dtype), async_op=async_op),
            async_op,
        )
        same(
            exchanged,
            torch.stack([data(r, (P, 2), dtype)[rank] for r in range(P)]),
            "all_to_all_single",
        )
        same(mine, everyone[rank], "what was sent")

    run(program, P)


@pytest.mark.parametrize("op", [*ARITHMETIC, "AVG"])
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_reductions_of_every_op_and_dtype(dtype: torch.dtype, op: str, async_op: bool) -> None:
    def total(tensors: list[torch.Tensor]) -> torch.Tensor:
        if op != "AVG":
            return reduce(ARITHMETIC[op], tensors)
        sums = reduce(torch.add, tensors)
        exact = sums.is_floating_point()
        return sums / P if exact else sums.div(P, rounding_mode="trunc")

    check_reductions(getattr(dist.ReduceOp, op), total, dtype, async_op)


@pytest.mark.parametrize("op", BITWISE)
@pytest.mark.parametrize("dtype", [*INTEGERS, torch.bool], ids=str)
def test_bitwise_reductions(dtype: torch.dtype, op: str) -> None:
    def total(tensors: list[torch.Tensor]) -> torch.Tensor:
        return reduce(BITWISE[op], tensors)

    check_reductions(getattr(dist.ReduceOp, op), total, dtype, async_op=False)


@pytest.mark.parametrize("op", ["SUM", "PRODUCT", "MAX", "MIN"])
def test_reductions_of_bool_are_logical(op: str) -> None:
    logical = torch.logical_or if op in ("SUM", "MAX") else torch.logical_and

    def total(tensors: list[torch.Tensor]) -> torch.Tensor:
        return reduce(logical, tensors)

    check_reductions(getattr(dist.ReduceOp, op), total, torch.bool, async_op=False)


def test_premul_sum_multiplies_every_contribution() -> None:
    factor = 0.25

    def total(tensors: list[torch.Tensor]) -> torch.Tensor:
        return sum((tensor * factor for tensor in tensors[1:]), tensors[0] * factor)

    op = dist._make_nccl_premul_sum(factor)
    check_reductions(op, total, torch.float64, async_op=True)


def test_the_same_op_by_its_old_names() -> None:
    def program(rank: int, _: Any) -> None:
        for op in (
            dist.ReduceOp.SUM,
            dist.ReduceOp(dist.ReduceOp.SUM),
            dist.ReduceOp.RedOpType.SUM,
        ):
            tensor = torch.tensor([rank])
            dist.all_reduce(tensor, op=op)
            assert tensor.item() == 3

    run(program, 3)


def check_reductions(
    op: Any,
    total: Callable[[list[torch.Tensor]], torch.Tensor],
    dtype: torch.dtype,
    async_op: bool,
) -> None:
    """all_reduce, reduce, reduce_scatter and reduce_scatter_tensor give what `total` gives."""

    def program(rank: int, _: Any) -> None:
        def expected(shape: tuple[int, ...]) -> torch.Tensor:
            return total([data(r, shape, dtype) for r in range(P)])

        tensor = data(rank, dtype=dtype)
        finish(dist.all_reduce(tensor, op, async_op=async_op), async_op)
        same(tensor, expected((3, 2)), "all_reduce")

        tensor = data(rank, dtype=dtype)
        finish(dist.reduce(tensor, 2, op, async_op=async_op), async_op)
        same(tensor, expected((3, 2)) if rank == 2 else data(rank, dtype=dtype), "reduce")

        whole = data(rank, (2 * P, 3), dtype)
        shard = whole.new_empty(2, 3)
        finish(dist.reduce_scatter_tensor(shard, whole, op, async_op=async_op), async_op)
        same(shard, expected((2 * P, 3)).chunk(P)[rank], "reduce_scatter_tensor")
        same(whole, data(rank, (2 * P, 3), dtype), "the input of reduce_scatter_tensor")

        shard = whole.new_empty(2, 3)
        parts = list(whole.chunk(P))
        finish(dist.reduce_scatter(shard, parts, op, async_op=async_op), async_op)
        same(shard, expected((2 * P, 3)).chunk(P)[rank], "reduce_scatter")

    run(program, P)


# Sizes that differ --------------------------------------------------------------------------------


def test_all_to_all_single_with_uneven_splits(async_op: bool) -> None:
    def rows(source: int, target: int) -> torch.Tensor:
        return data(source * P + target, ((source + 2 * target) % 3, 2), torch.float64)

    def program(rank: int, _: Any) -> None:
        outgoing = [rows(rank, r) for r in range(P)]
        incoming = [rows(r, rank) for r in range(P)]
        output = torch.empty(sum(map(len, incoming)), 2, dtype=torch.float64)
        work = dist.all_to_all_single(
            output,
            torch.cat(outgoing),
            output_split_sizes=[len(t) for t in incoming],
            input_split_sizes=[len(t) for t in outgoing],
            async_op=async_op,
        )
        finish(work, async_op)
        same(output, torch.cat(incoming))

    run(program, P)


def test_all_to_all_with_uneven_tensors(async_op: bool) -> None:
    def message(source: int, target: int) -> torch.Tensor:
        return data(source * P + target, (source + 1, target + 1))

    def program(rank: int, _: Any) -> None:
        incoming = [torch.empty(r + 1, rank + 1) for r in range(P)]
        outgoing = [message(rank, r) for r in range(P)]
        finish(dist.all_to_all(incoming, outgoing, async_op=async_op), async_op)
        for source in range(P):
            same(incoming[source], message(source, rank))

    run(program, P)


def test_all_gather_and_reduce_scatter_of_uneven_shards() -> None:
    def program(rank: int, _: Any) -> None:
        shard = torch.empty(rank + 1)
        dist.reduce_scatter(shard, [torch.full((r + 1,), float(rank)) for r in range(3)])
        same(shard, torch.full((rank + 1,), 3.0))

    run(program, 3)


def test_empty_and_zero_dimensional_tensors() -> None:
    def program(rank: int, _: Any) -> None:
        empty = torch.empty(0, 5)
        dist.all_reduce(empty)
        dist.all_gather([torch.empty(0, 5) for _ in range(P)], empty)
        dist.all_to_all_single(torch.empty(0), torch.empty(0), [0] * P, [0] * P)
        scalar = torch.tensor(float(rank))
        dist.all_reduce(scalar)
        assert scalar.item() == 6.0
        scalars = torch.empty(P)
        dist.all_gather_into_tensor(scalars, torch.tensor(float(rank)))
        assert scalars.tolist() == [0.0, 1.0, 2.0, 3.0]

    run(program, P)


def test_one_rank_alone() -> None:
    def program(rank: int, _: Any) -> None:
        tensor = data(0)
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        dist.broadcast(tensor, 0)
        output = torch.empty_like(tensor)
        dist.all_gather_into_tensor(output, tensor)
        dist.reduce_scatter_tensor(tensor, output)
        dist.all_to_all_single(output, tensor)
        dist.barrier()
        same(output, data(0))

    run(program, 1)


def test_complex_numbers() -> None:
    def program(rank: int, _: Any) -> None:
        tensor = torch.tensor([complex(rank, 1.0)])
        dist.all_reduce(tensor)
        assert tensor.item() == complex(3, 3)
        gathered = [torch.empty(1, dtype=torch.complex64) for _ in range(3)]
        dist.all_gather(gathered, torch.tensor([complex(rank, -rank)], dtype=torch.complex64))
        assert [t.item() for t in gathered] == [complex(r, -r) for r in range(3)]
        if rank == 0:
            dist.send(torch.tensor([1 + 2j]), 1)
        elif rank == 1:
            received = torch.empty(1, dtype=torch.complex64)
            dist.recv(received, 0)
            assert received.item() == 1 + 2j

    run(program, 3)
