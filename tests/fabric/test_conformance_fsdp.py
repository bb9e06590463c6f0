"""FSDP2's fully_shard, DTensor and tensor parallelism on simulated ranks, against one process."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.utils import clip_grad_norm_

from tests.fabric.models import WIDTH, Block, adam, batches, shard, small_model, train_alone
from tests.fabric.ranks import close, data, run, same

STEPS = 3


def sharded(mesh: Any = None, **how: Any) -> nn.Module:
    """The small model with FSDP2 on each block and on the whole."""
    model = small_model()
    for layer in model:
        if isinstance(layer, Block):
            fully_shard(layer, mesh=mesh, **how)
    return fully_shard(model, mesh=mesh, **how)


def train(
    rank: int,
    model: nn.Module,
    *,
    shards: int,
    index: int,
    dtype: torch.dtype = torch.float64,
    after_backward: Callable[[nn.Module], None] = lambda model: None,
) -> list[float]:
    """Losses of the global batch, on part `index` of `shards` of each."""
    optimizer = adam(model)
    losses = []
    for batch in batches(STEPS, dtype):
        x, y = shard(batch, index, shards)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        after_backward(model)
        optimizer.step()
        total = loss.detach().double()
        dist.all_reduce(total, dist.ReduceOp.AVG)
        losses.append(total.item())
    return losses


def agree(losses: list[float], model: nn.Module) -> None:
    """Losses and (gathered) parameters are those of one process."""
    expected, alone = train_alone(STEPS)
    assert losses == pytest.approx(expected, rel=1e-10)
    for (name, value), reference in zip(model.named_parameters(), alone.parameters(), strict=True):
        whole = value.full_tensor() if isinstance(value, DTensor) else value
        torch.testing.assert_close(whole, reference, rtol=1e-8, atol=1e-9, msg=name)


# FSDP2 --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compute", [False, True], ids=["", "compute"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_fully_shard_trains_as_one_process(ranks: int, compute: bool) -> None:
    def program(rank: int, _: Any) -> None:
        model = sharded()
        agree(train(rank, model, shards=ranks, index=rank), model)

    run(program, ranks, compute=compute)


@pytest.mark.parametrize(
    "how", [{"reshard_after_forward": False}, {"reshard_after_forward": 2}], ids=str
)
def test_fully_shard_resharding(how: dict[str, Any]) -> None:
    def program(rank: int, _: Any) -> None:
        model = sharded(**how)
        agree(train(rank, model, shards=4, index=rank), model)

    run(program, 4)


def test_fully_shard_holds_a_shard_of_each_parameter() -> None:
    def program(rank: int, _: Any) -> None:
        model = sharded()
        for parameter in model.parameters():
            assert isinstance(parameter, DTensor)
            assert parameter.placements == (Shard(0),)
            chunks = torch.empty(parameter.shape).chunk(3)
            expected = chunks[rank].numel() if rank < len(chunks) else 0
            assert parameter.to_local().numel() == expected

    run(program, 3)


def test_fully_shard_on_a_two_dimensional_mesh_is_hybrid() -> None:
    def program(rank: int, _: Any) -> None:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
        model = sharded(mesh)
        assert isinstance(model[0].up.weight, DTensor)
        assert model[0].up.weight.placements == (Replicate(), Shard(0))
        agree(train(rank, model, shards=4, index=rank), model)

    run(program, 4)


def test_fully_shard_mixed_precision() -> None:
    def program(rank: int, _: Any) -> list[float]:
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        model = small_model(dtype=torch.float32)
        for layer in model:
            fully_shard(layer, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
        seen = []
        model[0].up.register_forward_hook(lambda m, args, output: seen.append(output.dtype))
        losses = train(rank, model, shards=2, index=rank, dtype=torch.float32)
        assert set(seen) == {torch.bfloat16}
        assert all(p.dtype is torch.float32 and p.grad is not None for p in model.parameters())
        return losses

    expected, _ = train_alone(STEPS)
    for losses in run(program, 2):
        assert losses == pytest.approx(expected, rel=0.05)


def test_fully_shard_clips_the_norm_of_all_gradients() -> None:
    norms: list[float] = []

    def program(rank: int, _: Any) -> None:
        def clip(model: nn.Module) -> None:
            norm = clip_grad_norm_(model.parameters(), 0.1)
            assert isinstance(norm, DTensor)
            norms.append(norm.full_tensor().item())

        train(rank, sharded(), shards=2, index=rank, after_backward=clip)

    run(program, 2)
    alone = small_model()
    x, y = next(batches(1))
    nn.functional.cross_entropy(alone(x), y).backward()
    assert norms[0] == pytest.approx(clip_grad_norm_(alone.parameters(), 0.1).item(), rel=1e-10)


def test_fully_shard_accumulates_without_reducing() -> None:
    def program(rank: int, _: Any) -> None:
        model = sharded()
        x, y = shard(next(batches(1)), rank, 2)
        assert isinstance(model, FSDPModule)
        for micro in range(3):
            model.set_requires_gradient_sync(micro == 2)
            part = slice(2 * micro, 2 * micro + 2)
            (nn.functional.cross_entropy(model(x[part]), y[part]) / 3).backward()
        alone = small_model()
        x, y = next(batches(1))
        nn.functional.cross_entropy(alone(x), y).backward()
        for parameter, reference in zip(model.parameters(), alone.parameters(), strict=True):
            assert isinstance(parameter.grad, DTensor) and reference.grad is not None
            close(parameter.grad.full_tensor(), reference.grad)

    run(program, 2)


def test_fully_shard_prefetches_as_told() -> None:
    def program(rank: int, _: Any) -> None:
        model = sharded()
        blocks = [layer for layer in model if isinstance(layer, FSDPModule)]
        for earlier, later in pairwise(blocks):
            earlier.set_modules_to_forward_prefetch([later])
            later.set_modules_to_backward_prefetch([earlier])
        agree(train(rank, model, shards=2, index=rank), model)

    run(program, 2)


# DTensor ------------------------------------------------------------------------------------------


def test_distribute_and_redistribute() -> None:
    def program(rank: int, _: Any) -> None:
        mesh = init_device_mesh("cpu", (3,))
        whole = data(0, (7, 4), torch.float64)  # 7 rows do not divide by 3 ranks
        rows = distribute_tensor(whole, mesh, [Shard(0)])
        assert rows.to_local().shape[0] == (3, 3, 1)[rank]
        columns = rows.redistribute(mesh, [Shard(1)])
        same(columns.full_tensor(), whole)
        same(columns.redistribute(mesh, [Replicate()]).to_local(), whole)
        partial = DTensor.from_local(data(rank, (7, 4), torch.float64), mesh, [Partial()])
        total = torch.stack([data(r, (7, 4), torch.float64) for r in range(3)]).sum(0)
        same(partial.full_tensor(), total)
        same(partial.redistribute(mesh, [Shard(0)]).full_tensor(), total)

    run(program, 3)


def test_dtensor_computes_and_differentiates() -> None:
    def program(rank: int, _: Any) -> None:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
        a, b = data(0, (4, 6), torch.float64), data(1, (6, 8), torch.float64)
        left = distribute_tensor(a, mesh, [Shard(0), Replicate()]).requires_grad_()
        right = distribute_tensor(b, mesh, [Replicate(), Shard(1)]).requires_grad_()
        product = torch.relu(left @ right) - 3
        close(product.full_tensor(), torch.relu(a @ b) - 3)
        (product * product).sum().backward()
        a.requires_grad_(), b.requires_grad_()
        ((torch.relu(a @ b) - 3) ** 2).sum().backward()
        assert isinstance(left.grad, DTensor) and isinstance(right.grad, DTensor)
        close(left.grad.full_tensor(), a.grad)
        close(right.grad.full_tensor(), b.grad)

    run(program, 4)


def test_distribute_module_replicates_from_rank_0() -> None:
    def program(rank: int, _: Any) -> torch.Tensor:
        torch.manual_seed(rank)
        layer = distribute_module(nn.Linear(3, 3), init_device_mesh("cpu", (3,)))
        assert isinstance(layer.weight, DTensor)
        return layer.weight.to_local().detach()

    weights = run(program, 3)
    same(weights[1], weights[0])
    same(weights[2], weights[0])


# Tensor parallelism -------------------------------------------------------------------------------


def test_parallelize_module_colwise_and_rowwise() -> None:
    def program(rank: int, _: Any) -> None:
        model = small_model()
        plan: dict[str, Any] = {}
        for index in range(3):
            plan |= {f"{index}.up": ColwiseParallel(), f"{index}.down": RowwiseParallel()}
        parallelize_module(model, init_device_mesh("cpu", (2,)), plan)
        assert isinstance(model[0].up.weight, DTensor)
        assert model[0].up.weight.to_local().shape == (WIDTH, WIDTH)
        agree(train(rank, model, shards=1, index=0), model)

    run(program, 2)


@pytest.mark.parametrize("compute", [False, True], ids=["", "compute"])
def test_sequence_parallel(compute: bool) -> None:
    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(3)
            self.norm = nn.LayerNorm(WIDTH, dtype=torch.float64)
            self.up = nn.Linear(WIDTH, 2 * WIDTH, dtype=torch.float64)
            self.down = nn.Linear(2 * WIDTH, WIDTH, dtype=torch.float64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.down(torch.relu(self.up(self.norm(x))))

    x = data(0, (2, 4, WIDTH), torch.float64)
    alone = Layers()
    expected = alone(x)
    expected.square().sum().backward()

    def program(rank: int, _: Any) -> None:
        model = Layers()
        plan = {
            "": PrepareModuleInput(input_layouts=(Replicate(),), desired_input_layouts=(Shard(1),)),
            "norm": SequenceParallel(),
            "up": ColwiseParallel(input_layouts=Shard(1)),
            "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
        }
        parallelize_module(model, init_device_mesh("cpu", (2,)), plan)
        output = model(x)
        close(output.full_tensor(), expected.detach())
        output.full_tensor().square().sum().backward()
        for parameter, reference in zip(model.parameters(), alone.parameters(), strict=True):
            assert isinstance(parameter.grad, DTensor) and reference.grad is not None
            close(parameter.grad.full_tensor(), reference.grad)

    run(program, 2, compute=compute)


def test_loss_parallel() -> None:
    x = data(0, (4, 8), torch.float64)
    labels = torch.tensor([0, 5, 7, 2])
    alone = x.clone().requires_grad_()
    expected = nn.functional.cross_entropy(alone, labels)
    expected.backward()

    def program(rank: int, _: Any) -> None:
        mesh = init_device_mesh("cpu", (2,))
        logits = distribute_tensor(x, mesh, [Shard(1)]).requires_grad_()
        with loss_parallel():
            loss = nn.functional.cross_entropy(logits, labels)
            loss.backward()
        assert isinstance(loss, DTensor) and isinstance(logits.grad, DTensor)
        close(loss.full_tensor(), expected.detach())
        assert alone.grad is not None
        close(logits.grad.full_tensor(), alone.grad)

    run(program, 2)


def test_tensor_parallelism_inside_fully_shard() -> None:
    def program(rank: int, _: Any) -> None:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        model = small_model()
        for layer in model:
            if isinstance(layer, Block):
                plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
                parallelize_module(layer, mesh["tp"], plan)
                fully_shard(layer, mesh=mesh["dp"])
        fully_shard(model, mesh=mesh["dp"])
        agree(train(rank, model, shards=2, index=rank // 2), model)

    run(program, 4)
