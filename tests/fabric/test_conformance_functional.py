"""Functional collectives, and collectives that autograd differentiates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed.nn.functional as dist_nn

from grader.fabric import simulate
from tests.fabric.ranks import close, data, run, same

#: The older names of the same calls are what most programs use.
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")

P = 3


def test_functional_collectives_have_values() -> None:
    def program(rank: int, _: Any) -> None:
        world = dist.group.WORLD
        x = data(rank, (P, 2))
        everyone = [data(r, (P, 2)) for r in range(P)]
        total = torch.stack(everyone).sum(0)

        same(funcol.wait_tensor(funcol.all_reduce(x, "sum", world)), total)
        same(funcol.wait_tensor(funcol.all_reduce(x, "avg", world)), total / P)
        same(funcol.wait_tensor(funcol.broadcast(x, 1, world)), everyone[1])
        same(funcol.wait_tensor(funcol.all_gather_tensor(x, 0, world)), torch.cat(everyone))
        same(funcol.wait_tensor(funcol.all_gather_tensor(x, 1, world)), torch.cat(everyone, 1))
        shard = funcol.wait_tensor(funcol.reduce_scatter_tensor(x, "sum", 0, world))
        same(shard, total[rank : rank + 1])
        wide = data(rank, (2, 2 * P))
        shard = funcol.wait_tensor(funcol.reduce_scatter_tensor(wide, "sum", 1, world))
        same(shard, sum(data(r, (2, 2 * P)) for r in range(P)).chunk(P, 1)[rank])
        rows = funcol.wait_tensor(funcol.all_to_all_single(x, None, None, world))
        same(rows, torch.stack([t[rank] for t in everyone]))
        permuted = funcol.wait_tensor(funcol.permute_tensor(x[:, 0].clone(), [1, 2, 0], world))
        same(permuted, everyone[(rank - 1) % P][:, 0])
        same(x, everyone[rank])

    run(program, P)


def test_functional_collectives_wait_on_their_own_when_the_result_is_used() -> None:
    def program(rank: int, _: Any) -> None:
        a = funcol.all_reduce(data(rank), "sum", dist.group.WORLD)
        b = funcol.all_reduce(data(rank + 1), "sum", dist.group.WORLD)
        assert isinstance(a, funcol.AsyncCollectiveTensor)
        same(b + a, sum(data(r) + data(r + 1) for r in range(P)))

    run(program, P)


def test_functional_all_to_all_with_uneven_splits() -> None:
    def program(rank: int, _: Any) -> None:
        x = data(rank, (3 * (rank + 1), 2))
        output = funcol.all_to_all_single(
            x, [r + 1 for r in range(P)], [rank + 1] * P, dist.group.WORLD
        )
        expected = [data(r, (3 * (r + 1), 2)).chunk(P)[rank] for r in range(P)]
        same(funcol.wait_tensor(output), torch.cat(expected))

    run(program, P)


def test_coalesced_functional_collectives() -> None:
    def program(rank: int, _: Any) -> None:
        world = dist.group.WORLD
        inputs = [data(rank, (P,)), data(rank, (P, 2))]
        for reduced, shape in zip(
            funcol.all_reduce_coalesced(inputs, "sum", world), ((P,), (P, 2)), strict=True
        ):
            same(funcol.wait_tensor(reduced), sum(data(r, shape) for r in range(P)))
        gathered = funcol.all_gather_into_tensor_coalesced(inputs, world)
        same(funcol.wait_tensor(gathered[1]), torch.cat([data(r, (P, 2)) for r in range(P)]))
        funcol.wait_tensor(gathered[0])
        shards = funcol.reduce_scatter_tensor_coalesced(inputs, "sum", [0, 0], world)
        same(funcol.wait_tensor(shards[0]), sum(data(r, (P,)) for r in range(P))[rank : rank + 1])
        funcol.wait_tensor(shards[1])

    run(program, P)


def test_functional_collectives_in_a_permuted_group() -> None:
    def program(rank: int, _: Any) -> None:
        group = dist.new_group([2, 0], sort_ranks=False)
        if rank == 1:
            return
        gathered = funcol.wait_tensor(funcol.all_gather_tensor(data(rank), 0, group))
        same(gathered, torch.cat([data(2), data(0)]))

    run(program, P)


# Under autograd -----------------------------------------------------------------------------------

Forward = Callable[[list[torch.Tensor]], list[torch.Tensor]]


def check_gradients(
    on_rank: Callable[[int, torch.Tensor], torch.Tensor], reference: Forward, ranks: int = P
) -> None:
    """Values and gradients of `on_rank` equal those of `reference`, which has all ranks' inputs.

    Every rank's scalar loss is (output · its own weights); a rank's gradient is of their sum.
    """

    def leaf(rank: int) -> torch.Tensor:
        return data(rank, (P, 2), torch.float64).requires_grad_()

    def loss(rank: int, output: torch.Tensor) -> torch.Tensor:
        return (output * data(rank + 20, output.shape, torch.float64)).sum()

    leaves = [leaf(rank) for rank in range(ranks)]
    outputs = reference(leaves)
    torch.stack([loss(rank, output) for rank, output in enumerate(outputs)]).sum().backward()

    def program(rank: int, _: Any) -> None:
        mine = leaf(rank)
        output = on_rank(rank, mine)
        close(output, outputs[rank], f"rank {rank} forward")
        loss(rank, output).backward()
        expected = leaves[rank].grad
        assert mine.grad is not None
        close(mine.grad, torch.zeros_like(mine) if expected is None else expected, f"rank {rank}")

    run(program, ranks)


@pytest.mark.parametrize(
    ("on_rank", "reference"),
    [
        pytest.param(
            lambda rank, x: dist_nn.all_reduce(x * 1.0),
            lambda xs: [sum(xs)] * P,
            id="all_reduce",
        ),
        pytest.param(
            lambda rank, x: torch.cat(dist_nn.all_gather(x)),
            lambda xs: [torch.cat(xs)] * P,
            id="all_gather",
        ),
        pytest.param(
            lambda rank, x: dist_nn.reduce_scatter(x.new_empty(1, 2), list(x.chunk(P))),
            lambda xs: list(sum(xs).chunk(P)),
            id="reduce_scatter",
        ),
        pytest.param(
            lambda rank, x: dist_nn.all_to_all_single(torch.empty_like(x), x),
            lambda xs: [torch.stack([x[rank] for x in xs]) for rank in range(P)],
            id="all_to_all_single",
        ),
        pytest.param(
            lambda rank, x: torch.cat(
                dist_nn.all_to_all([x.new_empty(1, 2) for _ in range(P)], list(x.chunk(P)))
            ),
            lambda xs: [torch.stack([x[rank] for x in xs]) for rank in range(P)],
            id="all_to_all",
        ),
        pytest.param(
            lambda rank, x: dist_nn.broadcast(x * 1.0, 1),
            lambda xs: [xs[1]] * P,
            id="broadcast",
        ),
        pytest.param(
            lambda rank, x: dist_nn.scatter(list(x.chunk(P)), 2),
            lambda xs: list(xs[2].chunk(P)),
            id="scatter",
        ),
        pytest.param(
            lambda rank, x: (
                torch.cat(dist_nn.gather(x, 1)) if rank == 1 else dist_nn.gather(x, 1)[0] * 0 + x
            ),
            lambda xs: [xs[0], torch.cat(xs), xs[2]],
            id="gather",
        ),
        pytest.param(
            lambda rank, x: funcol.wait_tensor(
                funcol.all_gather_tensor_autograd(x, 0, dist.group.WORLD)
            ),
            lambda xs: [torch.cat(xs)] * P,
            id="all_gather_tensor_autograd",
        ),
        pytest.param(
            lambda rank, x: funcol.wait_tensor(
                funcol.reduce_scatter_tensor_autograd(x, "sum", 0, dist.group.WORLD)
            ),
            lambda xs: list(sum(xs).chunk(P)),
            id="reduce_scatter_tensor_autograd",
        ),
        pytest.param(
            lambda rank, x: funcol.wait_tensor(
                funcol.all_to_all_single_autograd(x, [1] * P, [1] * P, dist.group.WORLD)
            ),
            lambda xs: [torch.stack([x[rank] for x in xs]) for rank in range(P)],
            id="all_to_all_single_autograd",
        ),
    ],
)
def test_differentiable_collectives(
    on_rank: Callable[[int, torch.Tensor], torch.Tensor], reference: Forward
) -> None:
    check_gradients(on_rank, reference)


def test_a_user_function_that_communicates_in_backward() -> None:
    class Copy(torch.autograd.Function):
        """Megatron's f: the identity forwards, an all-reduce backwards."""

        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            grad = grad.clone()
            dist.all_reduce(grad)
            return grad

    def program(rank: int, _: Any) -> None:
        x = data(0, dtype=torch.float64).requires_grad_()
        (Copy.apply(x) * (rank + 1)).sum().backward()
        assert x.grad is not None
        close(x.grad, torch.full_like(x, 6.0))

    run(program, P)


def test_hooks_that_communicate_in_backward() -> None:
    def program(rank: int, _: Any) -> None:
        layer = torch.nn.Linear(3, 1, dtype=torch.float64)
        torch.nn.init.ones_(layer.weight)
        works = []

        def reduce_gradient(parameter: torch.Tensor) -> None:
            works.append(dist.all_reduce(parameter.grad, async_op=True))

        for parameter in layer.parameters():
            parameter.register_post_accumulate_grad_hook(reduce_gradient)
        layer(torch.full((2, 3), float(rank), dtype=torch.float64)).sum().backward()
        for work in works:
            work.wait()
        assert layer.weight.grad is not None and layer.bias.grad is not None
        close(layer.weight.grad, torch.full((1, 3), 6.0, dtype=torch.float64))
        close(layer.bias.grad, torch.full((1,), 6.0, dtype=torch.float64))

    run(program, P)


def test_communication_does_not_count_as_a_change_that_autograd_must_refuse() -> None:
    def program(rank: int, _: Any) -> None:
        full, weight = torch.empty(P), torch.tensor([rank + 1.0])
        dist.all_gather_into_tensor(full, weight)
        x = torch.ones(P, requires_grad=True)
        loss = (x * full).sum()
        full.data.zero_()  # as a sharded model frees what it gathered, and gathers it again
        dist.all_gather_into_tensor(full, weight)
        loss.backward()
        assert x.grad is not None
        same(x.grad, torch.tensor([1.0, 2.0, 3.0]))
        for fill in (
            lambda: dist.broadcast(full, 0),
            lambda: dist.all_reduce(full, dist.ReduceOp.MAX, async_op=True).wait(),
        ):
            before = full._version
            fill()
            assert full._version == before

    run(program, P)


# What a program forgets ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "forget",
    [
        lambda x: dist.all_reduce(x, async_op=True),
        lambda x: funcol.all_reduce(x, "sum", dist.group.WORLD),
        lambda x: dist.all_gather_into_tensor(x.new_empty(P, 3, 2), x, async_op=True),
    ],
    ids=["async_op", "functional", "all_gather_into_tensor"],
)
def test_a_collective_that_the_program_never_waits_for_is_reported(
    forget: Callable[[torch.Tensor], Any],
) -> None:
    def program(rank: int, _: Any) -> None:
        forget(data(rank))

    result = simulate(program, P)
    assert [finding.kind for finding in result.findings] == ["receive_not_waited"] * P
    assert f"{Path(__file__).name}:" in result.findings[0].message
