"""The reference's Python with its kernels and without: the same values and gradients.

Kernels run on CPU tensors too, so the one decision, `kernels.usable`, is bent to take those.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import kernels
from grader.checks.compare import assert_close
from grader.fabric import simulate
from kernels import cache, compilers, native, ops
from reference.a2_ring_all_reduce import hierarchical, ring, tree
from reference.a3_data_parallel.adamw import FusedAdamW
from reference.a3_data_parallel.zero import ShardedOptimizer
from reference.a4_tensor_parallel.cross_entropy import vocab_parallel_cross_entropy
from reference.a5_sequence_parallel.context_parallel import merge_attention, ring_attention
from reference.a5_sequence_parallel.norm import layer_norm
from reference.a5_sequence_parallel.sequence import SequenceParallelLayerNorm

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
Values = list[torch.Tensor]
Run = Callable[[], Values]


class OnGpu(torch.Tensor):
    """A tensor that says it is on a GPU."""

    is_cuda = True


class Forced:
    """`usable` as on a GPU. `launched`: the files that asked and got kernels."""

    def __init__(self) -> None:
        self.launched: set[str] = set()

    def usable(self, file: str, *tensors: torch.Tensor) -> kernels.Kernels | None:
        """As `kernels.usable`, were these tensors on a GPU."""
        if not ops.fit(*tensors):
            return None
        self.launched.add(Path(file).name)
        return ops.beside(file)


def both(run: Run, monkeypatch: pytest.MonkeyPatch, *files: str) -> tuple[Values, Values]:
    """What `run` gives by kernels and by torch; the first asks for kernels in exactly `files`."""
    torchs = run()
    forced = Forced()
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "usable", forced.usable)
        ours = run()
    assert forced.launched == set(files)
    return ours, torchs


def agree(ours: Values, torchs: Values, operations: int, dtype: torch.dtype) -> None:
    """Within the roundings of `operations` on each side, in units of each tensor's largest."""
    assert len(ours) == len(torchs) > 0
    for number, (a, b) in enumerate(zip(ours, torchs, strict=True)):
        assert a.dtype == b.dtype
        wide = b.detach().double()
        assert_close(
            a.detach(), wide, dtype=dtype, operations=2 * operations,
            scale=wide.abs().max().expand(wide.shape), where=f"value {number}",
        )  # fmt: skip


def on_ranks(world: int, program: Callable[[int], Any]) -> list[Any]:
    """What a program returns on each of `world` simulated ranks."""
    result = simulate(lambda rank, _: program(rank), world, time_limit=60)
    assert not result.findings, result.findings[0].message
    assert not result.errors, result.errors
    return result.returns


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


# The decision -------------------------------------------------------------------------------------


def test_on_cpu_tensors_nothing_is_imported_and_torch_does_the_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("kernels were asked for")

    for name in ("fit", "beside", "beside_on_gpu"):
        monkeypatch.setattr(ops, name, refuse)
    tensors = normal(4, 8), normal(4), normal(4, 8, seed=1), normal(4, seed=1)
    assert kernels.usable(__file__, *tensors) is None
    assert kernels.usable(__file__) is None
    merge_attention(*tensors)
    layer_norm(tensors[0], normal(8), normal(8))


def test_usable_takes_what_kernels_take(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ops, "cuda_available", lambda: True)
    monkeypatch.setattr(native, "is_built", lambda: True)
    folder = tmp_path / "a2_ring_all_reduce"
    a = normal(4, 6).as_subclass(OnGpu)
    found = kernels.usable(str(folder / "ring.py"), a, a)
    assert found is not None
    assert found is kernels.usable(str(folder / "tree.py"), a.bfloat16())
    for refused in (
        [a, normal(4)],
        [a.double()],
        [a, a.bfloat16()],
        [a.t()],
        [normal(4).requires_grad_().as_subclass(OnGpu)],
    ):
        assert kernels.usable(str(folder / "ring.py"), *refused) is None
    with torch.no_grad():
        wanted = normal(4).requires_grad_().as_subclass(OnGpu)
        assert kernels.usable(str(folder / "ring.py"), wanted) is found


def _missing(*_: Any) -> Any:
    raise compilers.NoCompiler("none here")


def test_without_a_compiler_usable_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tensor, file = normal(4).as_subclass(OnGpu), str(tmp_path / "a2_ring_all_reduce" / "ring.py")
    monkeypatch.setattr(native, "is_built", lambda: True)
    monkeypatch.setattr(native, "launcher", _missing)
    assert kernels.usable(file, tensor) is None


def test_usable_builds_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tensor, file = normal(4).as_subclass(OnGpu), str(tmp_path / "a2_ring_all_reduce" / "ring.py")
    monkeypatch.setenv(cache.ENVIRONMENT, str(tmp_path / "builds"))
    monkeypatch.setattr(ops, "cuda_available", lambda: True)
    assert kernels.usable(file, tensor) is None
    assert not list((tmp_path / "builds").iterdir())


# a2 -----------------------------------------------------------------------------------------------


def _reduced(name: str, dtype: torch.dtype, op: Any) -> Values:
    def program(rank: int) -> torch.Tensor:
        tensor = normal(37, dtype=dtype, seed=rank)
        if name == "scatter":
            whole, tensor = normal(3 * 13, dtype=dtype, seed=rank), tensor[:13].clone()
            ring.ring_reduce_scatter(tensor, whole, op)
        elif name == "hierarchical":
            alone = [dist.new_group([each]) for each in range(3)][rank]
            hierarchical.hierarchical_all_reduce(tensor, op, None, alone)
        else:
            more = {"segment_bytes": 16} if name.startswith("pipelined") else {}
            getattr(tree if name.startswith("halving") else ring, name)(tensor, op, **more)
        return tensor

    values = on_ranks(3, program)
    if name != "scatter":
        assert all(torch.equal(values[0], value) for value in values)
    return values


@DTYPES
@pytest.mark.parametrize(
    "name",
    ["ring_all_reduce", "pipelined_ring_all_reduce", "halving_doubling_all_reduce",
     "hierarchical", "scatter"],
)  # fmt: skip
def test_reductions_are_the_same_bits(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, torchs = both(lambda: _reduced(name, dtype, dist.ReduceOp.AVG), monkeypatch, "ring.py")
    assert all(torch.equal(a, b) for a, b in zip(ours, torchs, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_what_reduce_add_cannot_do_is_left_to_torch(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    op = dist.ReduceOp.MAX if dtype is torch.float32 else dist.ReduceOp.SUM
    ours, torchs = both(lambda: _reduced("ring_all_reduce", dtype, op), monkeypatch)
    assert all(torch.equal(a, b) for a, b in zip(ours, torchs, strict=True))


# a3 -----------------------------------------------------------------------------------------------

OPTIONS: dict[str, Any] = {"lr": 1e-2, "betas": (0.8, 0.99), "weight_decay": 0.1}


def _stepped(optimizer_class: Any, dtype: torch.dtype) -> Values:
    """Parameters and moments after four steps, the second half by a new object."""
    parameters = [torch.nn.Parameter(normal(*s, dtype=dtype)) for s in ((7, 5), (3,))]
    optimizer = optimizer_class(parameters, **OPTIONS)
    for step in range(4):
        if step == 2:
            saved = optimizer.state_dict()
            optimizer = optimizer_class(parameters, **OPTIONS)
            optimizer.load_state_dict(saved)
        for parameter in parameters:
            parameter.grad = normal(*parameter.shape, dtype=dtype, seed=step)
        optimizer.step()
    state = [optimizer.state[parameter] for parameter in parameters]
    assert [int(each["step"]) for each in state] == [4, 4]
    return [*parameters, *(each[name] for each in state for name in ("exp_avg", "exp_avg_sq"))]


@DTYPES
def test_fused_adamw(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, torchs = both(lambda: _stepped(FusedAdamW, dtype), monkeypatch, "adamw.py")
    agree(ours[:2], torchs[:2], 12 if dtype is torch.float32 else 4, dtype)
    agree(ours[2:], torchs[2:], 12, torch.float32)
    if dtype is torch.float32:
        agree(ours, _stepped(torch.optim.AdamW, dtype), 12, dtype)


def test_fused_adamw_inside_the_sharded_optimizer(monkeypatch: pytest.MonkeyPatch) -> None:
    def sharded() -> Values:
        def program(rank: int) -> Values:
            return _stepped_sharded()

        first, second = on_ranks(2, program)
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
        return first

    def _stepped_sharded() -> Values:
        parameters = [torch.nn.Parameter(normal(*s)) for s in ((7, 5), (3,), (4, 4))]
        optimizer = ShardedOptimizer(parameters, FusedAdamW, **OPTIONS)
        for step in range(2):
            for parameter in parameters:
                parameter.grad = normal(*parameter.shape, seed=step)
            optimizer.step()
        return [parameter.detach() for parameter in parameters]

    ours, torchs = both(sharded, monkeypatch, "adamw.py")
    agree(ours, torchs, 12, torch.float32)


@pytest.mark.parametrize(
    "options", [{"lr": -1.0}, {"eps": -1.0}, {"weight_decay": -0.5}, {"betas": (0.9, 1.0)}]
)
def test_fused_adamw_refuses_options_out_of_range(options: dict[str, Any]) -> None:
    ((name, value),) = options.items()
    with pytest.raises(ValueError, match=name) as caught:
        FusedAdamW([normal(3)], **options)
    assert str(value) in str(caught.value)


def test_a_kernel_that_writes_in_place_is_seen_by_autograd() -> None:
    weight = normal(5).requires_grad_()
    product = weight * weight
    with torch.no_grad():
        ops.beside(ring.__file__).reduce_add(weight, normal(5, seed=1))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


# a4 -----------------------------------------------------------------------------------------------


def _losses(dtype: torch.dtype, scale: float, **options: Any) -> Values:
    def program(rank: int) -> Values:
        whole = (normal(3, 4, 22) * scale).to(dtype)
        target = torch.arange(12).view(3, 4) * 7 % 22
        target[1] = -100
        leaf = whole[..., rank * 11 : rank * 11 + 11].clone().requires_grad_()
        loss = vocab_parallel_cross_entropy(leaf, target, **options)
        (loss * normal(3, 4, dtype=dtype, seed=2)).sum().backward()
        assert leaf.grad is not None
        return [loss, leaf.grad]

    return [value for values in on_ranks(2, program) for value in values]


@DTYPES
@pytest.mark.parametrize("scale", [2.0, 1e4])
def test_vocab_parallel_cross_entropy(
    scale: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, torchs = both(lambda: _losses(dtype, scale), monkeypatch, "cross_entropy.py")
    # Of large logits the sum of exponentials inherits a rounding of their size.
    operations = int(30 * max(1.0, scale / 10)) if dtype is torch.float32 else 4
    agree(ours, torchs, operations, dtype)
    assert all(bool((loss[1] == 0).all()) for loss in ours[::2])


def test_label_smoothing_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> Values:
        return _losses(torch.float32, 2.0, label_smoothing=0.1)

    ours, torchs = both(run, monkeypatch)
    assert all(torch.equal(a, b) for a, b in zip(ours, torchs, strict=True))


# a5 -----------------------------------------------------------------------------------------------


@DTYPES
def test_merge_attention(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    out_a, out_b = (normal(2, 5, 16, dtype=dtype, seed=seed) for seed in range(2))
    lse_a, lse_b = (normal(2, 5, seed=seed) * 3 for seed in range(2, 4))
    lse_a[0, 1], out_a[0, 1] = -torch.inf, 0
    lse_a[1, 2] = lse_b[1, 2] = -torch.inf
    out_a[1, 2] = out_b[1, 2] = 0
    ours, torchs = both(
        lambda: list(merge_attention(out_a, lse_a, out_b, lse_b)),
        monkeypatch, "context_parallel.py",
    )  # fmt: skip
    assert ours[1][1, 2] == torchs[1][1, 2] == -torch.inf
    for lse in (ours[1], torchs[1]):
        lse[1, 2] = 0
    agree(ours[:1], torchs[:1], 8 if dtype is torch.float32 else 2, dtype)
    agree(ours[1:], torchs[1:], 8, torch.float32)


def test_merge_attention_still_has_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> Values:
        leaves = [normal(4, 8).requires_grad_(), normal(4).requires_grad_()]
        out, lse = merge_attention(*leaves, normal(4, 8, seed=1), normal(4, seed=1))
        (out.sum() + lse.sum()).backward()
        return [leaf.grad for leaf in leaves if leaf.grad is not None]

    ours, torchs = both(run, monkeypatch)
    assert all(torch.equal(a, b) for a, b in zip(ours, torchs, strict=True))
    assert len(ours) == 2


@DTYPES
def test_ring_attention(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    def program(rank: int) -> Values:
        leaves = [normal(1, 2, 6, 8, dtype=dtype, seed=3 * rank + i) for i in range(3)]
        q, k, v = (leaf.requires_grad_() for leaf in leaves)
        out = ring_attention(q, k, v, causal=True)
        (out * normal(1, 2, 6, 8, dtype=dtype, seed=9)).sum().backward()
        return [out, *(leaf.grad for leaf in leaves if leaf.grad is not None)]

    def run() -> Values:
        return [value for values in on_ranks(2, program) for value in values]

    ours, torchs = both(run, monkeypatch, "context_parallel.py")
    assert len(ours) == 8
    agree(ours, torchs, 100 if dtype is torch.float32 else 4, dtype)


def _normed(dtype: torch.dtype, saved: list[int]) -> Values:
    """Output and gradients of two ranks; `saved` gets the bytes kept for backward."""

    def program(rank: int) -> Values:
        dense = torch.nn.LayerNorm(24, dtype=dtype)
        with torch.no_grad():
            assert dense.weight is not None
            dense.weight.copy_(normal(24, seed=5))
            dense.bias.copy_(normal(24, seed=6))
        norm = SequenceParallelLayerNorm.from_dense(dense)
        x = normal(5, 3, 24, dtype=dtype, seed=rank).requires_grad_()
        kept: dict[int, int] = {}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            kept[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            out = norm(x)
        saved.append(sum(kept.values()))
        (out * normal(5, 3, 24, dtype=dtype, seed=7)).sum().backward()
        assert x.grad is not None
        return [out, x.grad, norm.weight.grad, norm.bias.grad]

    return [value for values in on_ranks(2, program) for value in values]


@DTYPES
def test_sequence_parallel_layer_norm(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[int] = []
    ours, torchs = both(lambda: _normed(dtype, saved), monkeypatch, "norm.py")
    agree(ours, torchs, 60 if dtype is torch.float32 else 4, dtype)
    # x, the weight, and float32 statistics of 15 rows: less than torch, which keeps the bias too.
    assert set(saved[2:]) == {(15 * 24 + 24) * dtype.itemsize + 15 * 8}
    if dtype is torch.float32:  # of bfloat16 torch keeps narrower statistics on the CPU
        assert max(saved[2:]) < min(saved[:2])


@pytest.mark.parametrize("missing", ["weight", "bias"])
def test_layer_norm_without_a_parameter_is_left_to_torch(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = {"weight": normal(8), "bias": normal(8, seed=1)} | {missing: None}
    ours, torchs = both(lambda: [layer_norm(normal(3, 8), **parameters)], monkeypatch)
    assert torch.equal(ours[0], torchs[0])
