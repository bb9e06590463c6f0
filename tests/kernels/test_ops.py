"""The kernels of the reference as functions on tensors, beside torch's own operations."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from kernels.ops import Kernels, beside

REFERENCE = Path(__file__).resolve().parents[2] / "reference"
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])


def _kernels(assignment: str) -> Kernels:
    return beside(str(REFERENCE / assignment / "__init__.py"))


def _close(a: torch.Tensor, b: torch.Tensor) -> None:
    tolerance = 2e-2 if a.dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(a, b.to(a.dtype), rtol=tolerance, atol=tolerance)


@DTYPES
def test_reduce_add(dtype: torch.dtype) -> None:
    dst, src = torch.randn(3, 1001).to(dtype), torch.randn(3, 1001).to(dtype)
    expected = dst + src
    _kernels("a2_ring_all_reduce").reduce_add(dst, src)
    assert torch.equal(dst, expected)


def test_adamw_follows_torch_over_several_steps() -> None:
    param = torch.nn.Parameter(torch.randn(777))
    optimizer = torch.optim.AdamW([param], lr=1e-2, weight_decay=0.1)
    ours = param.detach().clone()
    exp_avg, exp_avg_sq = torch.zeros(777), torch.zeros(777)
    for step in range(1, 5):
        param.grad = torch.randn(777)
        optimizer.step()
        _kernels("a3_data_parallel").adamw(
            ours, param.grad, exp_avg, exp_avg_sq, step=step, lr=1e-2, weight_decay=0.1
        )
    _close(ours, param.detach())


@DTYPES
def test_vocab_cross_entropy_of_two_shards(dtype: torch.dtype) -> None:
    kernels = _kernels("a4_tensor_parallel")
    logits = torch.randn(9, 40).to(dtype)
    target = torch.randint(40, (9,))
    target[3] = -100
    shards = [logits[:, :25].contiguous(), logits[:, 25:].contiguous()]
    parts = [kernels.vocab_cross_entropy_forward(s, target, i * 25) for i, s in enumerate(shards)]
    most = torch.maximum(parts[0][0], parts[1][0])
    total = sum(part[1] * (part[0] - most).exp() for part in parts)
    lse = most + torch.log(torch.as_tensor(total))
    loss = torch.where(target == -100, 0.0, lse - parts[0][2] - parts[1][2])
    leaf = logits.float().requires_grad_()
    expected = F.cross_entropy(leaf, target, reduction="none")
    _close(loss, expected.detach())
    upstream = torch.randn(9)
    expected.backward(upstream)
    grads = [
        kernels.vocab_cross_entropy_backward(s, target, lse, upstream, i * 25)
        for i, s in enumerate(shards)
    ]
    assert leaf.grad is not None
    _close(torch.cat(grads, 1), leaf.grad)


@DTYPES
def test_attention_merge(dtype: torch.dtype) -> None:
    q, k, v = (torch.randn(2, 3, 10, 16) for _ in range(3))
    halves = []
    for part in (slice(0, 4), slice(4, 10)):
        scores = q @ k[:, :, part].transpose(-1, -2) / 4
        lse = scores.logsumexp(-1)
        halves += [(scores.softmax(-1) @ v[:, :, part]).to(dtype), lse]
    out, lse = _kernels("a5_sequence_parallel").attention_merge(*halves)
    _close(out, F.scaled_dot_product_attention(q, k, v))
    _close(lse, (q @ k.transpose(-1, -2) / 4).logsumexp(-1))


@DTYPES
def test_layer_norm(dtype: torch.dtype) -> None:
    kernels = _kernels("a5_sequence_parallel")
    x, weight, bias, dy = (
        torch.randn(*shape).to(dtype) for shape in ((33, 48), (48,), (48,), (33, 48))
    )
    leaves = [tensor.float().requires_grad_() for tensor in (x, weight, bias)]
    expected = F.layer_norm(leaves[0], (48,), leaves[1], leaves[2])
    out, mean, rstd = kernels.layer_norm_forward(x, weight, bias)
    _close(out, expected.detach())
    expected.backward(dy.float())
    for ours, leaf in zip(
        kernels.layer_norm_backward(dy, x, weight, mean, rstd), leaves, strict=True
    ):
        assert leaf.grad is not None
        _close(ours, leaf.grad)


@DTYPES
def test_moe_permute_and_back(dtype: torch.dtype) -> None:
    kernels = _kernels("a8_expert_parallel")
    tokens, weights = torch.randn(50, 24).to(dtype), torch.rand(50, 2)
    experts = torch.randint(5, (50, 2), dtype=torch.int32)
    experts[7, 1] = -1
    weights[7, 1] = 0
    rows, position, counts = kernels.moe_permute(tokens, experts, 5)
    kept = experts.flatten() >= 0
    order = torch.argsort(experts.flatten(), stable=True)[int((~kept).sum()) :]
    assert torch.equal(rows, tokens[order // 2])
    assert counts.tolist() == torch.bincount(experts.flatten()[kept].long(), minlength=5).tolist()
    back = kernels.moe_unpermute(rows, weights, position)
    _close(back, tokens.float() * weights.sum(1, keepdim=True))
