"""Given: short trials of the layers that a run is made of, in float64, against one device.

Each is called on all ranks with the layers under trial and the mesh, and raises when something
differs. They are no substitute for the checks of the assignments.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn import functional as F

from ..a4_tensor_parallel.dense import MLP, Attention, Block
from .model import MoE

HIDDEN, BATCH = 4, 2


def _numbers(mesh: DeviceMesh, seed: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(mesh.device_type)


def _made(mesh: DeviceMesh, module: nn.Module) -> nn.Module:
    """The module with parameters that are the same on all ranks."""
    module = module.to(torch.float64).to(mesh.device_type)
    for number, parameter in enumerate(module.parameters()):
        parameter.data = _numbers(mesh, number, *parameter.shape)
    return module


def _same(what: str, got: torch.Tensor | None, expected: torch.Tensor | None) -> None:
    if got is None or expected is None or got.shape != expected.shape:
        found = None if got is None else tuple(got.shape)
        raise ValueError(f"{what}: expected {tuple(expected.shape)}, got {found}")  # type: ignore[union-attr]
    difference = float((got - expected).detach().abs().max()) if got.numel() else 0.0
    if not difference <= 1e-9 * (1 + float(expected.detach().abs().max())):
        raise ValueError(f"{what} is off by {difference:.2g}")


def _share(whole: torch.Tensor, shape: torch.Size, mesh: DeviceMesh) -> torch.Tensor:
    """This tensor-parallel rank's share of a dense parameter or gradient, cut to `shape`."""
    rank, size = mesh.get_local_rank("tp"), mesh["tp"].size()
    for dim, (all_, own) in enumerate(zip(whole.shape, shape, strict=True)):
        if all_ != own:
            whole = whole.chunk(size, dim)[rank]
    return whole


def _compare(
    mesh: DeviceMesh,
    dense: nn.Module,
    parallel: nn.Module,
    whole: torch.Tensor,
    cut_input: bool = False,
    cut_output: int | None = None,
) -> None:
    """Both modules forward and backward; cut_…: what of the parallel one's is a share."""
    tp, rank = mesh["tp"].size(), mesh.get_local_rank("tp")
    inputs = whole.clone().requires_grad_(whole.is_floating_point())
    given = (whole.chunk(tp)[rank] if cut_input else whole).clone()
    given.requires_grad_(whole.is_floating_point())
    expected, got = dense(inputs), parallel(given)
    slope = _numbers(mesh, 99, *expected.shape)
    expected.backward(slope)
    if cut_output is not None:
        expected, slope = (t.chunk(tp, cut_output)[rank] for t in (expected, slope))
    _same("the output", got, expected)
    got.backward(slope.contiguous())
    if whole.is_floating_point():
        assert inputs.grad is not None
        wanted = inputs.grad.chunk(tp)[rank] if cut_input else inputs.grad
        _same("the input's gradient", given.grad, wanted)
    theirs = dict(dense.named_parameters())
    for name, parameter in parallel.named_parameters():
        gradient = theirs[name].grad
        assert gradient is not None
        _same(f"the gradient of {name}", parameter.grad, _share(gradient, parameter.shape, mesh))


def _data_parallelism(parts: Any, mesh: DeviceMesh) -> None:
    ranks, rank = mesh["dp"].size(), mesh.get_local_rank("dp")
    model = _made(mesh, nn.Linear(HIDDEN, 3))
    dense = _made(mesh, nn.Linear(HIDDEN, 3))
    ddp = parts.DistributedDataParallel(model, mesh.get_group("dp"))
    rows = [_numbers(mesh, number, 2, HIDDEN) for number in range(ranks)]
    for _ in range(2):
        with ddp.no_sync():
            ddp(rows[rank]).square().sum().backward()
        ddp(rows[rank]).sum().backward()
        ddp.finish_gradient_synchronization()
        for each in rows:
            ((dense(each).square().sum() + dense(each).sum()) / ranks).backward()
        for got, expected in zip(model.parameters(), dense.parameters(), strict=True):
            _same("a gradient", got.grad, expected.grad)
            got.grad = expected.grad = None


def _embedding(parts: Any, mesh: DeviceMesh) -> None:
    dense = _made(mesh, nn.Embedding(4 * mesh["tp"].size(), HIDDEN))
    parallel = parts.VocabParallelEmbedding.from_embedding(dense, mesh.get_group("tp"))
    _compare(mesh, dense, parallel, torch.tensor([[0, 3], [1, 2]], device=mesh.device_type))


def _head(parts: Any, mesh: DeviceMesh) -> None:
    dense = _made(mesh, nn.Linear(HIDDEN, 2 * mesh["tp"].size(), bias=False))
    parallel = parts.ColumnParallelLinear.from_linear(dense, mesh.get_group("tp"))
    _compare(mesh, dense, parallel, _numbers(mesh, 7, 3, BATCH, HIDDEN), cut_output=2)


def _loss(parts: Any, mesh: DeviceMesh) -> None:
    size, rank = mesh["tp"].size(), mesh.get_local_rank("tp")
    whole = _numbers(mesh, 7, 3, BATCH, 2 * size).requires_grad_()
    share = whole.detach().chunk(size, -1)[rank].clone().requires_grad_()
    target = torch.tensor([[0, 1], [2, 3], [1, 0]], device=mesh.device_type)
    expected = F.cross_entropy(whole.flatten(0, 1), target.flatten(), reduction="none")
    got = parts.vocab_parallel_cross_entropy(share, target, mesh.get_group("tp"))
    _same("the loss", got, expected.view(target.shape))
    expected.mean().backward()
    got.mean().backward()
    assert whole.grad is not None
    _same("the gradient of the logits", share.grad, whole.grad.chunk(size, -1)[rank])


def _block(mesh: DeviceMesh) -> Block:
    width = HIDDEN * mesh["tp"].size()
    block = Block(width, Attention(width, mesh["tp"].size()), MLP(width, 2 * width))
    made = _made(mesh, block)
    assert isinstance(made, Block)
    return made


def _attention(parts: Any, mesh: DeviceMesh) -> None:
    dense = _block(mesh).attention
    parallel = parts.ParallelAttention.from_dense(dense, mesh.get_group("tp"))
    _compare(mesh, dense, parallel, _numbers(mesh, 7, 3, BATCH, dense.query.in_features))


def _mlp(parts: Any, mesh: DeviceMesh) -> None:
    dense = _block(mesh).mlp
    parallel = parts.ParallelMLP.from_dense(dense, mesh.get_group("tp"))
    _compare(mesh, dense, parallel, _numbers(mesh, 7, 3, BATCH, dense.up.in_features))


def _sequence_norm(parts: Any, mesh: DeviceMesh) -> None:
    dense = _made(mesh, nn.LayerNorm(HIDDEN))
    parallel = parts.SequenceParallelLayerNorm.from_dense(dense, mesh.get_group("tp"))
    whole = _numbers(mesh, 7, 2 * mesh["tp"].size(), BATCH, HIDDEN)
    _compare(mesh, dense, parallel, whole, cut_input=True, cut_output=0)


def _sequence_block(parts: Any, mesh: DeviceMesh) -> None:
    dense = _block(mesh)
    parallel = parts.SequenceParallelBlock.from_dense(dense, mesh.get_group("tp"))
    whole = _numbers(mesh, 7, 2 * mesh["tp"].size(), BATCH, dense.attention.query.in_features)
    _compare(mesh, dense, parallel, whole, cut_input=True, cut_output=0)


def _sequence_cuts(parts: Any, mesh: DeviceMesh) -> None:
    size, rank, tp = mesh["tp"].size(), mesh.get_local_rank("tp"), mesh.get_group("tp")
    values = _numbers(mesh, 7, 2 * size, BATCH)
    whole = values.clone().requires_grad_()
    share = parts.scatter_to_sequence_parallel(whole, tp)
    _same("scatter's output", share, values.chunk(size)[rank])
    share.backward(values.chunk(size)[rank].contiguous())
    _same("scatter's gradient", whole.grad, values)
    own = values.chunk(size)[rank].clone().requires_grad_()
    gathered = parts.gather_from_sequence_parallel(own, tp)
    _same("gather's output", gathered, values)
    gathered.backward(values * (rank + 1))
    _same("gather's gradient", own.grad, values.chunk(size)[rank] * (size * (size + 1) / 2))


def _partition(parts: Any, mesh: DeviceMesh) -> None:
    for costs, stages in (([0.0, 4, 4, 4, 4, 1], 2), ([1.0, 1, 1], 3), ([2.0, 1], 1)):
        cut = [tuple(part) for part in parts.partition_layers(costs, stages)]
        bounds = [0, *(end for _, end in cut)]
        if cut != list(pairwise(bounds)) or bounds[-1] != len(costs) or len(cut) != stages:
            raise ValueError(f"partition_layers({costs}, {stages}) returned {cut}")
        if any(begin >= end for begin, end in cut):
            raise ValueError(f"partition_layers({costs}, {stages}) has an empty stage: {cut}")


def _pipeline(parts: Any, mesh: DeviceMesh) -> None:
    stages, rank, count = mesh["pp"].size(), mesh.get_local_rank("pp"), 3
    layers = [_made(mesh, nn.Linear(HIDDEN, HIDDEN)) for _ in range(stages)]
    own = _made(mesh, nn.Linear(HIDDEN, HIDDEN))
    values = [_numbers(mesh, number, 2, HIDDEN) for number in range(count)]
    expected = torch.stack(
        [F.mse_loss(nn.Sequential(*layers)(x), x.flip(0)) for x in values]
    ).mean()
    expected.backward()
    loss = parts.run_schedule(
        parts.one_f_one_b_schedule(stages, count),
        {rank: parts.PipelineStage(own)},
        values if rank == 0 else None,
        [x.flip(0) for x in values] if rank == stages - 1 else None,
        F.mse_loss,
        mesh.get_group("pp"),
    )
    if rank == stages - 1:
        _same("the loss", loss, expected.detach())
    for got, wanted in zip(own.parameters(), layers[rank].parameters(), strict=True):
        _same("a gradient", got.grad, wanted.grad)


class _Router(nn.Module):
    def __init__(self, top_k_router: Callable[..., Any], dense: nn.Linear) -> None:
        super().__init__()
        self.linear, self.top_k_router = dense, top_k_router

    def forward(self, tokens: torch.Tensor) -> Any:
        return self.top_k_router(self.linear(tokens), 2)


def _experts(parts: Any, mesh: DeviceMesh) -> None:
    group = mesh.get_group("ep")
    ranks, rank = group.size(), dist.get_rank(group)
    dense, own = (_made(mesh, MoE(HIDDEN, 2 * ranks, 2)) for _ in range(2))
    assert isinstance(dense, MoE) and isinstance(own, MoE)
    layer = parts.ExpertParallelMoE(
        list(own.experts)[2 * rank : 2 * rank + 2],
        _Router(parts.top_k_router, own.router),
        group,
    )
    values = [_numbers(mesh, number, 3, BATCH, HIDDEN) for number in range(ranks)]
    given = values[rank].clone().requires_grad_()
    wanted = [x.clone().requires_grad_() for x in values]
    outputs = [dense(x) for x in wanted]
    got = layer(given)
    _same("the output", got, outputs[rank])
    got.square().sum().backward()
    torch.stack([output.square().sum() for output in outputs]).sum().backward()
    _same("the tokens' gradient", given.grad, wanted[rank].grad)
    for number in (2 * rank, 2 * rank + 1):
        pairs = zip(
            own.experts[number].parameters(), dense.experts[number].parameters(), strict=True
        )
        for ours, theirs in pairs:
            _same(f"a gradient of expert {number}", ours.grad, theirs.grad)


TRIALS: dict[str, Callable[[Any, DeviceMesh], None]] = {
    "data parallelism": _data_parallelism,
    "embedding": _embedding,
    "head": _head,
    "loss": _loss,
    "attention": _attention,
    "MLP": _mlp,
    "sequence norm": _sequence_norm,
    "sequence block": _sequence_block,
    "sequence cuts": _sequence_cuts,
    "partition": _partition,
    "pipeline": _pipeline,
    "experts": _experts,
}
