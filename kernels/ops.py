"""The kernels of a kernels.cu as functions on tensors, with checks and launch shapes.

    from kernels import beside

    beside(__file__).reduce_add(dst, src)      # the kernels.cu in the folder of this file

Tensors may be on the CPU (simulated threads) or on a GPU. All must be contiguous and on one device.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch

from kernels import cuda_available, native
from kernels.library import ArgumentError, KernelFile, Mode

_BLOCK = 256
_WAVES = 8  # blocks of 256 threads that a multiprocessor holds at once
_CPU_BLOCKS = 64
_MAX_SHARED = 227 << 10
_SUFFIXES = {torch.float32: "fp32", torch.bfloat16: "bf16"}


class Kernels:
    """The operations of one kernels.cu. Each runs where its tensors are."""

    def __init__(self, path: Path | str, mode: Mode = "fast") -> None:
        self.file = KernelFile(path, mode=mode)

    def reduce_add(self, dst: torch.Tensor, src: torch.Tensor) -> None:
        """dst += src, in place; float32 or bfloat16 of one shape, added in float32.

        Raises `ArgumentError` (a ValueError and TypeError) for tensors that do not fit.
        """
        _same_shape("src", src, "dst", dst)
        n = dst.numel()
        self._launch(f"reduce_add_{_suffix(dst)}", [dst, src, n], dst, -(-n // _per_block(dst)))
        _changed(dst)

    def adamw(
        self,
        param: torch.Tensor,
        grad: torch.Tensor,
        exp_avg: torch.Tensor,
        exp_avg_sq: torch.Tensor,
        *,
        step: int,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        """One step of AdamW [Loshchilov, Hutter 2019], in place.

        param, grad: float32 or bfloat16; exp_avg, exp_avg_sq: float32; all of one shape.
        step: counted from 1.
        """
        for name, value in (("grad", grad), ("exp_avg", exp_avg), ("exp_avg_sq", exp_avg_sq)):
            _same_shape(name, value, "param", param)
        if step < 1:
            raise ArgumentError(f"step counts from 1, got {step}")
        corrections = [1.0 - beta**step for beta in betas]
        n = param.numel()
        numbers = [n, lr, *betas, eps, weight_decay, *corrections]
        arguments = [param, grad, exp_avg, exp_avg_sq, *numbers]
        self._launch(f"adamw_{_suffix(param)}", arguments, param, -(-n // _per_block(param)))
        _changed(param, exp_avg, exp_avg_sq)

    def vocab_cross_entropy_forward(
        self, logits: torch.Tensor, target: torch.Tensor, vocab_start: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Per token: the shard's largest logit, sum of exp(logit - largest), the target's logit.

        logits: (tokens, vocab), vocab >= 1; target: (tokens,) int64 in the whole vocabulary; the
        shard begins at vocab_start. Results are float32 (tokens,); the third is 0 where the target
        is not on this shard.
        """
        tokens, vocab = _rows_and_columns("logits", logits)
        _has_shape("target", target, (tokens,))
        if vocab == 0:
            raise ArgumentError("logits must have at least one column")
        results = [_new(logits, (tokens,), torch.float32) for _ in range(3)]
        arguments = [*results, logits, target, tokens, vocab, vocab_start]
        name = f"vocab_cross_entropy_forward_{_suffix(logits)}"
        self._launch(name, arguments, logits, tokens)
        return results[0], results[1], results[2]

    def vocab_cross_entropy_backward(
        self,
        logits: torch.Tensor,
        target: torch.Tensor,
        logsumexp: torch.Tensor,
        grad_loss: torch.Tensor,
        vocab_start: int,
        ignore_index: int = -100,
    ) -> torch.Tensor:
        """(tokens, vocab), of logits' dtype: grad_loss (softmax - [the target's column]).

        logsumexp: float32 (tokens,), of the whole vocabulary; grad_loss: float32 (tokens,), taken
        as 0 where target is ignore_index.
        """
        tokens, vocab = _rows_and_columns("logits", logits)
        for name, value in (("target", target), ("logsumexp", logsumexp), ("grad_loss", grad_loss)):
            _has_shape(name, value, (tokens,))
        grad = torch.empty_like(logits)
        inputs = [logits, target, logsumexp, grad_loss]
        arguments = [grad, *inputs, tokens, vocab, vocab_start, ignore_index]
        name = f"vocab_cross_entropy_backward_{_suffix(logits)}"
        self._launch(name, arguments, logits, tokens)
        return grad

    def attention_merge(
        self, out_a: torch.Tensor, lse_a: torch.Tensor, out_b: torch.Tensor, lse_b: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(out, lse) of attention over the keys of both sides.

        out_a, out_b: (…, head dim); lse_a, lse_b: float32, without the last dimension.
        """
        _same_shape("out_b", out_b, "out_a", out_a)
        for name, value in (("lse_a", lse_a), ("lse_b", lse_b)):
            _has_shape(name, value, tuple(out_a.shape[:-1]))
        out, lse = torch.empty_like(out_a), torch.empty_like(lse_a)
        rows, dim = lse.numel(), out.shape[-1]
        arguments = [out, lse, out_a, lse_a, out_b, lse_b, rows, dim]
        blocks = -(-max(out.numel(), rows) // _per_block(out))
        self._launch(f"attention_merge_{_suffix(out)}", arguments, out, blocks)
        return out, lse

    def layer_norm_forward(
        self, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(out, mean, rstd): input (rows, hidden), weight and bias (hidden,), of one dtype.

        mean and rstd are float32 (rows,).
        """
        rows, hidden = _rows_and_columns("input", input)
        for name, value in (("weight", weight), ("bias", bias)):
            _has_shape(name, value, (hidden,))
        out = torch.empty_like(input)
        mean, rstd = (_new(input, (rows,), torch.float32) for _ in range(2))
        arguments = [out, mean, rstd, input, weight, bias, rows, hidden, eps]
        self._launch(f"layer_norm_forward_{_suffix(input)}", arguments, input, rows)
        return out, mean, rstd

    def layer_norm_backward(
        self,
        grad_out: torch.Tensor,
        input: torch.Tensor,
        weight: torch.Tensor,
        mean: torch.Tensor,
        rstd: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(grad_input, grad_weight, grad_bias); the last two are float32 (hidden,).

        hidden is at most 28672: what a block gathers must fit its shared memory.
        """
        rows, hidden = _rows_and_columns("input", input)
        _same_shape("grad_out", grad_out, "input", input)
        _has_shape("weight", weight, (hidden,))
        for name, value in (("mean", mean), ("rstd", rstd)):
            _has_shape(name, value, (rows,))
        if 8 * hidden > _MAX_SHARED:
            raise ArgumentError(f"hidden is at most {28 << 10}, got {hidden}")
        grad_input = torch.empty_like(input)
        sums = [torch.zeros(hidden, device=input.device) for _ in range(2)]
        arguments = [grad_input, *sums, grad_out, input, weight, mean, rstd, rows, hidden]
        name = f"layer_norm_backward_{_suffix(input)}"
        self._launch(name, arguments, input, min(rows, _resident(input) // 2), 8 * hidden)
        return grad_input, sums[0], sums[1]

    def moe_permute(
        self, tokens: torch.Tensor, experts: torch.Tensor, num_experts: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(rows, position, counts): tokens in the order of their experts, stably.

        tokens: (tokens, hidden); experts: (tokens, k) int32, -1 for a dropped choice. rows: (kept,
        hidden); position: (tokens, k) int32, the row of each choice, -1 if dropped; counts:
        (num_experts,) int32.
        """
        count, hidden = _rows_and_columns("tokens", tokens)
        _, k = _rows_and_columns("experts", experts)
        _has_shape("experts", experts, (count, k))
        counts = torch.zeros(num_experts, dtype=torch.int32, device=tokens.device)
        assignments = count * k
        sizes: list[Any] = [assignments, num_experts]
        blocks = -(-assignments // 1024)
        self._launch("moe_permute_count", [counts, experts, *sizes], experts, blocks)
        begin = (counts.cumsum(0) - counts).to(torch.int32)
        position = torch.empty_like(experts)
        arguments = [position, experts, begin, *sizes]
        self._launch("moe_permute_position", arguments, experts, num_experts)
        rows = _new(tokens, (int(counts.sum()), hidden), tokens.dtype)
        arguments = [rows, tokens, position, assignments, k, hidden]
        self._launch(f"moe_permute_{_suffix(tokens)}", arguments, tokens, -(-count // 8))
        return rows, position, counts

    def moe_unpermute(
        self, rows: torch.Tensor, weights: torch.Tensor, position: torch.Tensor
    ) -> torch.Tensor:
        """(tokens, hidden): per token the weighted sum of its choices' rows, in float32.

        rows: (kept, hidden); weights: (tokens, k) float32; position: (tokens, k) int32.
        """
        _, hidden = _rows_and_columns("rows", rows)
        _same_shape("position", position, "weights", weights)
        count, k = _rows_and_columns("weights", weights)
        out = _new(rows, (count, hidden), rows.dtype)
        arguments = [out, rows, weights, position, count, k, hidden]
        self._launch(f"moe_unpermute_{_suffix(rows)}", arguments, rows, -(-count // 8))
        return out

    def _launch(
        self,
        kernel: str,
        arguments: list[Any],
        like: torch.Tensor,
        blocks: int,
        shared_bytes: int = 0,
    ) -> None:
        """Launch `blocks` blocks, but not more than the device of `like` can hold at once."""
        grid = max(1, min(blocks, _resident(like)))
        self.file.launch(kernel, arguments, grid=grid, block=_BLOCK, shared_bytes=shared_bytes)


@functools.cache
def beside(file: str, mode: Mode = "fast") -> Kernels:
    """The kernels of the kernels.cu that lies beside the Python file `file`."""
    return _in_folder(Path(file).absolute().parent, mode)


@functools.cache
def beside_on_gpu(file: str) -> Kernels | None:
    """As `beside`; None where kernels cannot be built for, or launched on, a GPU.

    The native layer is not built here: that takes half a minute, which nobody expects of a step.
    """
    return beside(file) if native.is_built() and cuda_available() else None


@functools.cache
def _in_folder(folder: Path, mode: Mode) -> Kernels:
    return Kernels(folder / "kernels.cu", mode)


def fit(*tensors: torch.Tensor) -> bool:
    """Whether kernels take these tensors, and autograd need not know.

    Contiguous, on one device, of one dtype, float32 or bfloat16; no gradient is wanted of them.
    """
    first = tensors[0]
    if first.dtype not in _SUFFIXES:
        return False
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return False
    return all(
        tensor.dtype == first.dtype and tensor.device == first.device and tensor.is_contiguous()
        for tensor in tensors
    )


def _resident(like: torch.Tensor) -> int:
    if like.device.type != "cuda":
        return _CPU_BLOCKS
    return _WAVES * _multiprocessors(like.get_device())


@functools.cache
def _multiprocessors(device: int) -> int:
    return int(native.launcher().device_info(device).multiprocessors)


def _per_block(like: torch.Tensor) -> int:
    """Elements for one 16-byte access of each thread of a block."""
    return _BLOCK * 16 // like.element_size()


def _suffix(tensor: torch.Tensor) -> str:
    if tensor.dtype not in _SUFFIXES:
        raise ArgumentError(f"kernels take float32 or bfloat16, got {tensor.dtype}")
    return _SUFFIXES[tensor.dtype]


def _changed(*tensors: torch.Tensor) -> None:
    """Let autograd know, as torch's own operations in place do, so that it refuses stale values."""
    for tensor in tensors:
        if not tensor.is_inference():
            torch.autograd.graph.increment_version(tensor)


def _new(like: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device=like.device)


def _same_shape(name: str, value: torch.Tensor, other: str, wanted: torch.Tensor) -> None:
    if value.shape != wanted.shape:
        raise ArgumentError(
            f"{name} must have {other}'s shape {tuple(wanted.shape)}, got {tuple(value.shape)}"
        )


def _has_shape(name: str, value: torch.Tensor, shape: tuple[int, ...]) -> None:
    if tuple(value.shape) != shape:
        raise ArgumentError(f"{name} must have shape {shape}, got {tuple(value.shape)}")


def _rows_and_columns(name: str, value: torch.Tensor) -> tuple[int, int]:
    if value.dim() != 2:
        raise ArgumentError(f"{name} must have 2 dimensions, got shape {tuple(value.shape)}")
    return value.shape[0], value.shape[1]
