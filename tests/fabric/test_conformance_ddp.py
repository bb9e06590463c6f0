"""torch's DistributedDataParallel and ZeroRedundancyOptimizer on simulated ranks, step by step."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from grader.fabric import simulate
from tests.fabric.models import BATCH, WIDTH, adam, batches, shard, small_model, train_alone
from tests.fabric.ranks import close, run, same

SMALL_BUCKETS = 0.001  # MiB: several buckets even for a small model
STEPS = 4


def mean_loss(loss: torch.Tensor) -> float:
    """The mean of the ranks' losses, as one process with the global batch computes it."""
    total = loss.detach().clone()
    dist.all_reduce(total, dist.ReduceOp.AVG)
    return total.item()


def train(
    rank: int, model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = STEPS
) -> list[float]:
    """Train on this rank's shards of the global batches."""
    losses = []
    for batch in batches(steps):
        x, y = shard(batch, rank, dist.get_world_size())
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(mean_loss(loss))
    return losses


def agree(losses: list[float], model: nn.Module) -> None:
    """Losses and parameters are those of one process, up to the order of additions."""
    expected, alone = train_alone(len(losses))
    assert losses == pytest.approx(expected, rel=1e-10)
    for (name, value), reference in zip(model.named_parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(value, reference, rtol=1e-8, atol=1e-9, msg=name)


@pytest.mark.parametrize("compute", [False, True], ids=["", "compute"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_ddp_trains_as_one_process(ranks: int, compute: bool) -> None:
    def program(rank: int, _: Any) -> None:
        model = DistributedDataParallel(small_model(), bucket_cap_mb=SMALL_BUCKETS)
        agree(train(rank, model, adam(model)), model.module)

    run(program, ranks, compute=compute)


@pytest.mark.parametrize(
    "options",
    [
        {"gradient_as_bucket_view": True},
        {"static_graph": True},
        {"find_unused_parameters": True},
        {"init_sync": False},
        {"bucket_cap_mb": 25},
    ],
    ids=lambda options: next(iter(options)),
)
def test_ddp_options(options: dict[str, Any]) -> None:
    def program(rank: int, _: Any) -> None:
        how = {"bucket_cap_mb": SMALL_BUCKETS} | options
        model = DistributedDataParallel(small_model(), **how)
        agree(train(rank, model, adam(model)), model.module)

    run(program, 2)


@pytest.mark.parametrize("schedule", [1, 2])
def test_ddp_under_another_order_of_the_ranks(schedule: int) -> None:
    def program(rank: int, _: Any) -> None:
        model = DistributedDataParallel(small_model(), bucket_cap_mb=SMALL_BUCKETS)
        agree(train(rank, model, adam(model)), model.module)

    run(program, 3, schedule=schedule)


def test_ddp_reduces_several_buckets_in_each_backward() -> None:
    def program(rank: int, _: Any) -> None:
        model = DistributedDataParallel(small_model(), bucket_cap_mb=SMALL_BUCKETS)
        model(next(batches(1))[0]).sum().backward()  # after it DDP fills its buckets anew
        loss = model(next(batches(1))[0]).sum()
        dist.barrier()
        loss.backward()

    result = simulate(program, 2)
    mine = [operation for operation in result.record.operations if operation.rank == 0]
    kinds = [operation.kind for operation in mine]
    buckets = mine[kinds.index("barrier") + 1 :]
    assert {operation.kind for operation in buckets} == {"all_reduce"}
    assert len(buckets) >= 3
    gradients = sum(p.numel() * p.element_size() for p in small_model().parameters())
    assert sum(operation.nbytes for operation in buckets) == gradients


def test_ddp_starts_from_the_parameters_of_rank_0() -> None:
    def program(rank: int, _: Any) -> torch.Tensor:
        torch.manual_seed(rank)
        return DistributedDataParallel(nn.Linear(3, 3)).module.weight.detach()

    weights = run(program, 3)
    same(weights[1], weights[0])
    same(weights[2], weights[0])


def test_ddp_no_sync_accumulates() -> None:
    def program(rank: int, _: Any) -> None:
        model = DistributedDataParallel(small_model(), bucket_cap_mb=SMALL_BUCKETS)
        optimizer = adam(model)
        losses = []
        for batch in batches(STEPS):
            x, y = shard(batch, rank, 2)
            optimizer.zero_grad()
            total = torch.zeros((), dtype=torch.float64)
            for micro in range(3):
                last = micro == 2
                with contextlib.nullcontext() if last else model.no_sync():
                    inputs, labels = x.chunk(3)[micro], y.chunk(3)[micro]
                    loss = nn.functional.cross_entropy(model(inputs), labels) / 3
                    loss.backward()
                total += loss.detach()
            optimizer.step()
            losses.append(mean_loss(total))
        agree(losses, model.module)

    run(program, 2)


class Branches(nn.Module):
    """Uses one of two branches, so that the other's parameters get no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)]).double()

    def forward(self, x: torch.Tensor, which: int) -> torch.Tensor:
        return self.branches[which](x)


def test_ddp_finds_parameters_that_a_rank_did_not_use() -> None:
    def program(rank: int, _: Any) -> None:
        torch.manual_seed(0)
        model = DistributedDataParallel(Branches(), find_unused_parameters=True)
        x = torch.ones(1, 2, dtype=torch.float64)
        model(x, 0 if rank == 0 else 1).sum().backward()
        for branch in model.module.branches:  # each used by one of the two ranks
            close(branch.weight.grad, torch.full((2, 2), 0.5, dtype=torch.float64))
        model.zero_grad()
        model(x, 0).sum().backward()
        close(model.module.branches[0].weight.grad, torch.ones(2, 2, dtype=torch.float64))
        assert model.module.branches[1].weight.grad is None

    run(program, 2)


def test_ddp_broadcasts_the_buffers_of_batch_norm() -> None:
    def program(rank: int, _: Any) -> torch.Tensor:
        model = DistributedDataParallel(nn.BatchNorm1d(2).double())
        generator = torch.Generator().manual_seed(rank)
        for _ in range(2):
            x = torch.randn(4, 2, dtype=torch.float64, generator=generator) + rank
            model(x).sum().backward()
        model.eval()
        model(torch.zeros(1, 2, dtype=torch.float64))  # a forward pass begins with the broadcast
        return model.module.running_mean.clone()

    means = run(program, 3)
    generator = torch.Generator().manual_seed(0)
    alone = nn.BatchNorm1d(2).double()
    for _ in range(2):
        alone(torch.randn(4, 2, dtype=torch.float64, generator=generator))
    assert alone.running_mean is not None
    for mean in means:
        close(mean, alone.running_mean)


# Communication hooks ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["allreduce_hook", "fp16_compress_hook", "bf16_compress_hook"])
def test_ddp_communication_hooks(name: str) -> None:
    def program(rank: int, _: Any) -> list[float]:
        model = DistributedDataParallel(small_model(), bucket_cap_mb=SMALL_BUCKETS)

        def hook(state, bucket):  # by its own name torch refuses bf16 where it has no CUDA
            return getattr(default_hooks, name)(state, bucket)

        model.register_comm_hook(None, hook)
        return train(rank, model, adam(model))

    expected, _ = train_alone(STEPS)
    tolerance = 1e-10 if name == "allreduce_hook" else 2e-2
    for losses in run(program, 2):
        assert losses == pytest.approx(expected, rel=tolerance)


def test_ddp_hook_of_the_users_own() -> None:
    def hook(state, bucket):  # torch compares the annotations, which are strings here
        work = dist.all_reduce(bucket.buffer().div_(2), async_op=True)
        assert work is not None
        return work.get_future().then(lambda future: future.value()[0])

    def program(rank: int, _: Any) -> None:
        model = DistributedDataParallel(small_model(), bucket_cap_mb=SMALL_BUCKETS)
        model.register_comm_hook(None, hook)
        agree(train(rank, model, adam(model)), model.module)

    run(program, 2)


def test_ddp_power_sgd_hook_keeps_ranks_equal() -> None:
    def program(rank: int, _: Any) -> torch.Tensor:
        model = DistributedDataParallel(small_model().float(), bucket_cap_mb=SMALL_BUCKETS)
        state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=1, start_powerSGD_iter=2
        )
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        optimizer = adam(model)
        for batch in batches(STEPS, torch.float32):
            x, y = shard(batch, rank, 2)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    first, second = run(program, 2)
    same(first, second)
    assert torch.isfinite(first).all()


# Around DDP ---------------------------------------------------------------------------------------


def test_join_of_ranks_with_uneven_inputs() -> None:
    def program(rank: int, _: Any) -> torch.Tensor:
        torch.manual_seed(0)
        model = DistributedDataParallel(nn.Linear(2, 1).double())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        steps = 0
        with Join([model]):
            for _ in range(2 + rank):
                optimizer.zero_grad()
                model(torch.ones(1, 2, dtype=torch.float64)).sum().backward()
                optimizer.step()
                steps += 1
        assert steps == 2 + rank
        return model.module.weight.detach().clone()

    weights = run(program, 3)
    same(weights[1], weights[0])
    same(weights[2], weights[0])


@pytest.mark.parametrize("overlap", [False, True])
def test_zero_redundancy_optimizer(overlap: bool) -> None:
    def program(rank: int, _: Any) -> None:
        model = DistributedDataParallel(small_model(), bucket_cap_mb=SMALL_BUCKETS)
        optimizer = ZeroRedundancyOptimizer(
            model.parameters(), torch.optim.Adam, lr=0.02, parameters_as_bucket_view=overlap
        )
        losses = train(rank, model, optimizer)
        agree(losses, model.module)
        optimizer.consolidate_state_dict(to=0)
        if rank == 0:
            count = len(list(model.parameters()))
            assert len(optimizer.state_dict()["state"]) == count

    run(program, 3)


def test_sync_batch_norm_refuses_the_cpu_as_everywhere() -> None:
    def program(rank: int, _: Any) -> None:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(2))
        with pytest.raises(ValueError, match="input tensor to be on"):
            model(torch.ones(2, 2))

    run(program, 2)


def test_distributed_sampler_parts_the_data() -> None:
    def program(rank: int, _: Any) -> list[int]:
        data = torch.utils.data.TensorDataset(torch.arange(BATCH))
        sampler = torch.utils.data.DistributedSampler(data, shuffle=True, seed=3)
        loader = torch.utils.data.DataLoader(data, batch_size=2, sampler=sampler)
        return [int(i) for (values,) in loader for i in values]

    parts = run(program, 3)
    assert sorted(i for part in parts for i in part) == list(range(BATCH))


def test_dropout_of_ddp_ranks_differs_by_their_seeds() -> None:
    def program(rank: int, _: Any) -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(rank)
        model = DistributedDataParallel(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.5)))
        torch.manual_seed(rank + 100)
        masks = []
        for _ in range(2):
            output = model(torch.ones(1, WIDTH))
            masks.append(output.detach() == 0)
            output.sum().backward()
        return masks[0], masks[1]

    (first, second), (other, _) = run(program, 2)
    torch.manual_seed(100)
    expected = [nn.functional.dropout(torch.ones(1, WIDTH), 0.5) == 0 for _ in range(2)]
    same(first, expected[0])
    same(second, expected[1])
    assert not torch.equal(first, other)
