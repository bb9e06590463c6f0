"""What kernels are timed on: large operands, how many bytes must move, and torch's own operation.

Used by the speed checks and by the benchmark; needs a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from kernels.ops import Kernels

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass
class Work:
    """One set of operands. ours, theirs: the kernel and torch's operation; both may be repeated.

    nbytes: what must be read and written. agree: whether one call of ours, made by the function
    given to it, gives in all its results what torch gives.
    """

    nbytes: int
    ours: Callable[[], Any]
    theirs: Callable[[], Any]
    agree: Callable[[Callable[[Callable[[], Any]], Any]], bool]


def make(kernels: Kernels, name: str, nbytes: int, device: str = "cuda") -> Work:
    """Operands of about `nbytes` bytes in total for `name`, "reduce_add_bf16"."""
    operation, _, suffix = name.rpartition("_")
    return _MAKERS[operation](kernels, _DTYPES[suffix], nbytes, device)


def names() -> list[str]:
    """All that can be timed."""
    return [f"{operation}_{suffix}" for operation in _MAKERS for suffix in _DTYPES]


def _size(tensors: list[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _close(a: torch.Tensor, b: torch.Tensor, of: float = 1.0) -> bool:
    """Whether all elements are equal but for rounding. of: the size of what they are sums of."""
    relative = 2e-2 if a.dtype == torch.bfloat16 else 1e-4
    return torch.allclose(a.float(), b.float(), rtol=relative, atol=relative * of)


def _all_close(
    run: Callable[..., Any],
    ours: Callable[[], Any],
    *expected: torch.Tensor,
    of: tuple[float, ...] = (1.0,) * 3,
) -> bool:
    """Whether `ours` returns the tensors `expected`, which are sums of numbers of these sizes."""
    got: list[Any] = []

    def kept() -> None:
        got[:] = [ours()]

    # Memory that earlier calls have left may hold their results: new tensors shall not find them.
    blank = [torch.full_like(each, -77) for each in expected]
    del blank
    run(kept)
    results = got[0] if isinstance(got[0], tuple) else (got[0],)
    pairs = zip(results, expected, strict=True)
    return all(_close(a, b, size) for (a, b), size in zip(pairs, of, strict=False))


def _reduce_add(kernels: Kernels, dtype: torch.dtype, nbytes: int, device: str) -> Work:
    n = nbytes // (3 * dtype.itemsize)
    dst = torch.randn(n, device=device).to(dtype)
    src = 1e-3 * torch.randn(n, device=device).to(dtype)  # so that many additions stay finite

    def ours() -> None:
        kernels.reduce_add(dst, src)

    def agree(run: Callable[..., Any]) -> bool:
        expected = dst + src
        run(ours)
        return torch.equal(dst, expected)

    return Work(3 * n * dtype.itemsize, ours, lambda: dst.add_(src), agree)


def _adamw(kernels: Kernels, dtype: torch.dtype, nbytes: int, device: str) -> Work:
    moved = 3 * dtype.itemsize + 4 * 4
    n = nbytes // moved
    param, grad = (torch.randn(n, device=device).to(dtype) for _ in range(2))
    exp_avg, exp_avg_sq = torch.zeros(n, device=device), torch.zeros(n, device=device)
    steps = [torch.tensor(2.0, device=device)]

    def theirs() -> None:
        # torch's fused step keeps its moments in the parameter's dtype.
        torch._fused_adamw_(
            [param], [grad], [moments[0]], [moments[1]], [], steps, lr=1e-3, beta1=0.9,
            beta2=0.999, weight_decay=1e-2, eps=1e-8, amsgrad=False, maximize=False,
        )  # fmt: skip

    moments = [exp_avg.to(dtype), exp_avg_sq.to(dtype)]

    def agree(run: Callable[..., Any]) -> bool:
        before = param.float().clone()
        m = 0.9 * exp_avg + 0.1 * grad.float()
        v = 0.999 * exp_avg_sq + 0.001 * grad.float() ** 2
        run(ours)
        update = (m / 0.19) / ((v / (1 - 0.999**2)).sqrt() + 1e-8)
        expected = (before - 1e-3 * (1e-2 * before + update)).to(dtype)
        moved = (param.float() - before).abs().mean()
        return (
            _close(param, expected)
            and _close(exp_avg, m)
            and _close(exp_avg_sq, v, 1e-3)
            and bool(moved > 1e-5)
        )

    def ours() -> None:
        kernels.adamw(param, grad, exp_avg, exp_avg_sq, step=2)

    return Work(moved * n, ours, theirs, agree)


def _cross_entropy(
    kernels: Kernels, dtype: torch.dtype, nbytes: int, device: str
) -> tuple[torch.Tensor, torch.Tensor]:
    vocab = 32_000
    tokens = max(1, nbytes // (2 * vocab * dtype.itemsize))
    logits = torch.randn(2 * tokens, vocab, device=device).to(dtype)
    return logits, torch.randint(vocab, (2 * tokens,), device=device)


def _cross_entropy_forward(kernels: Kernels, dtype: torch.dtype, nbytes: int, device: str) -> Work:
    logits, target = _cross_entropy(kernels, dtype, nbytes, device)

    def ours() -> tuple[torch.Tensor, ...]:
        return kernels.vocab_cross_entropy_forward(logits, target, 0)

    def agree(run: Callable[..., Any]) -> bool:
        most = logits.amax(-1).float()
        total = (logits.float() - most[:, None]).exp().sum(-1)
        chosen = logits.gather(1, target.long()[:, None])[:, 0].float()
        return _all_close(run, ours, most, total, chosen)

    return Work(
        _size([logits, target]) + 12 * len(target),
        ours,
        lambda: F.cross_entropy(logits, target, reduction="none"),
        agree,
    )


def _cross_entropy_backward(kernels: Kernels, dtype: torch.dtype, nbytes: int, device: str) -> Work:
    logits, target = _cross_entropy(kernels, dtype, nbytes // 2, device)
    lse, grad = logits.float().logsumexp(-1), torch.randn(len(target), device=device)
    log_softmax = F.log_softmax(logits, -1)
    upstream = torch.randn(len(target), 1, device=device).to(dtype).expand_as(logits).contiguous()

    def ours() -> torch.Tensor:
        return kernels.vocab_cross_entropy_backward(logits, target, lse, grad, 0)

    def agree(run: Callable[..., Any]) -> bool:
        # Another part of the rows each time: all of them in float would not fit small GPUs.
        rows = torch.randperm(len(target), device=device)[: len(target) // 4 + 1]
        expected = logits[rows].float().softmax(-1)
        expected[torch.arange(len(rows), device=device), target[rows].long()] -= 1
        expected *= grad[rows, None]
        return _all_close(run, lambda: ours()[rows], expected.to(dtype))

    return Work(
        2 * _size([logits]) + 16 * len(target),
        ours,
        lambda: torch.ops.aten._log_softmax_backward_data(upstream, log_softmax, -1, dtype),
        agree,
    )


def _attention_merge(kernels: Kernels, dtype: torch.dtype, nbytes: int, device: str) -> Work:
    dim = 128
    rows = nbytes // (3 * dim * dtype.itemsize)
    out_a, out_b = (torch.randn(rows, dim, device=device).to(dtype) for _ in range(2))
    lse_a, lse_b = (torch.randn(rows, device=device) for _ in range(2))

    def theirs() -> tuple[torch.Tensor, torch.Tensor]:
        lse = torch.logaddexp(lse_a, lse_b)
        a, b = (lse_a - lse).exp()[:, None], (lse_b - lse).exp()[:, None]
        return (a * out_a + b * out_b).to(dtype), lse

    def ours() -> tuple[torch.Tensor, torch.Tensor]:
        return kernels.attention_merge(out_a, lse_a, out_b, lse_b)

    def agree(run: Callable[..., Any]) -> bool:
        return _all_close(run, ours, *theirs())

    return Work(3 * rows * (dim * dtype.itemsize + 4), ours, theirs, agree)


def _norm(
    dtype: torch.dtype, nbytes: int, passes: int, device: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    hidden = 4096
    rows = nbytes // (passes * hidden * dtype.itemsize)
    input = torch.randn(rows, hidden, device=device).to(dtype)
    weight, bias = (torch.randn(hidden, device=device).to(dtype) for _ in range(2))
    return input, weight, bias


def _layer_norm_forward(kernels: Kernels, dtype: torch.dtype, nbytes: int, device: str) -> Work:
    input, weight, bias = _norm(dtype, nbytes, 2, device)

    def theirs() -> torch.Tensor:
        return F.layer_norm(input, weight.shape, weight, bias)

    def ours() -> tuple[torch.Tensor, ...]:
        return kernels.layer_norm_forward(input, weight, bias)

    def agree(run: Callable[..., Any]) -> bool:
        mean = input.float().mean(-1)
        rstd = (input.float().var(-1, unbiased=False) + 1e-5).rsqrt()
        return _all_close(run, ours, theirs(), mean, rstd)

    return Work(2 * _size([input]) + 8 * len(input), ours, theirs, agree)


def _layer_norm_backward(kernels: Kernels, dtype: torch.dtype, nbytes: int, device: str) -> Work:
    input, weight, bias = _norm(dtype, nbytes, 3, device)
    grad = torch.randn_like(input)
    _, mean, rstd = torch.native_layer_norm(input, weight.shape, weight, bias, 1e-5)
    flat_mean = input.float().mean(-1)
    flat_rstd = (input.float().var(-1, unbiased=False) + 1e-5).rsqrt()

    def theirs() -> tuple[torch.Tensor, ...]:
        shape = list(weight.shape)
        wanted = [True, True, True]
        backward = torch.ops.aten.native_layer_norm_backward
        return tuple(backward(grad, input, shape, mean, rstd, weight, bias, wanted))

    def ours() -> tuple[torch.Tensor, ...]:
        return kernels.layer_norm_backward(grad, input, weight, flat_mean, flat_rstd)

    def agree(run: Callable[..., Any]) -> bool:
        size = 4.0 * len(input) ** 0.5  # of the sums over rows
        normed = (input.float() - flat_mean[:, None]) * flat_rstd[:, None]
        sums = ((grad.float() * normed).sum(0), grad.float().sum(0))
        inner = grad.float() * weight.float()
        inner -= inner.mean(-1, keepdim=True) + normed * (inner * normed).mean(-1, keepdim=True)
        expected = (inner * flat_rstd[:, None]).to(dtype)
        return _all_close(run, ours, expected, *sums, of=(1.0, size, size))

    return Work(3 * _size([input]), ours, theirs, agree)


def _moe(
    kernels: Kernels, dtype: torch.dtype, nbytes: int, rows_per_token: int, device: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    hidden, k, experts = 4096, 2, 64
    count = nbytes // (rows_per_token * hidden * dtype.itemsize)
    tokens = torch.randn(count, hidden, device=device).to(dtype)
    chosen = torch.randint(experts, (count, k), device=device, dtype=torch.int32)
    return tokens, chosen, torch.rand(count, k, device=device)


def _moe_permute(kernels: Kernels, dtype: torch.dtype, nbytes: int, device: str) -> Work:
    tokens, chosen, _ = _moe(kernels, dtype, nbytes, 3, device)
    rows, position, _ = kernels.moe_permute(tokens, chosen, 64)
    order = chosen.flatten().argsort(stable=True) // 2
    name = f"moe_permute_{'fp32' if dtype == torch.float32 else 'bf16'}"
    sizes = [chosen.numel(), 2, tokens.shape[1]]

    def ours() -> None:
        grid = min(-(-len(tokens) // 8), 1024)
        kernels.file.launch(name, [rows, tokens, position, *sizes], grid=grid)

    def agree(run: Callable[..., Any]) -> bool:
        rows.zero_()
        run(ours)
        return torch.equal(rows, tokens[order])

    return Work(3 * _size([tokens]) + _size([position]), ours, lambda: tokens[order], agree)


def _moe_unpermute(kernels: Kernels, dtype: torch.dtype, nbytes: int, device: str) -> Work:
    tokens, chosen, weights = _moe(kernels, dtype, nbytes, 3, device)
    rows, position, _ = kernels.moe_permute(tokens, chosen, 64)

    def theirs() -> torch.Tensor:
        return (rows[position.long()] * weights[..., None].to(dtype)).sum(1)

    def ours() -> torch.Tensor:
        return kernels.moe_unpermute(rows, weights, position)

    def agree(run: Callable[..., Any]) -> bool:
        return _all_close(run, ours, theirs())

    nbytes = 3 * _size([tokens]) + _size([position, weights])
    return Work(nbytes, ours, theirs, agree)


_MAKERS: dict[str, Callable[[Kernels, torch.dtype, int, str], Work]] = {
    "reduce_add": _reduce_add,
    "adamw": _adamw,
    "vocab_cross_entropy_forward": _cross_entropy_forward,
    "vocab_cross_entropy_backward": _cross_entropy_backward,
    "attention_merge": _attention_merge,
    "layer_norm_forward": _layer_norm_forward,
    "layer_norm_backward": _layer_norm_backward,
    "moe_permute": _moe_permute,
    "moe_unpermute": _moe_unpermute,
}
