"""The reference's two ways to permute, torch's operations and kernels.cu, give the same."""

from __future__ import annotations

import pytest
import torch

import kernels
from kernels.compilers import NoCompiler, cxx
from reference.a8_expert_parallel import dispatch as module


@pytest.fixture(autouse=True)
def _compiler() -> None:
    try:
        cxx()
    except NoCompiler as problem:
        pytest.skip(str(problem))


def _there_and_back(dtype: torch.dtype, empty: bool) -> list[torch.Tensor]:
    """Rows, sums, and all gradients of a permutation of 40 tokens with 3 choices of 5 bins."""
    rng = torch.Generator().manual_seed(3)
    count = 0 if empty else 40
    tokens = torch.randn(count, 16, generator=rng).to(dtype).requires_grad_()
    weights = torch.rand(count, 3, generator=rng).requires_grad_()
    bins = torch.randint(-1, 5, (count, 3), generator=rng, dtype=torch.int32)
    rows, position, counts = module._Permute.apply(tokens, bins, 5)
    results = rows * torch.arange(1, 17).to(dtype)
    sums = module._Unpermute.apply(results, weights, position)
    plain = module._Unpermute.apply(results, None, position)
    (sums.float() * 2 + plain.float()).sum().backward()
    assert tokens.grad is not None
    assert weights.grad is not None
    return [rows, position, counts, sums, plain, tokens.grad, weights.grad]


@pytest.mark.parametrize("empty", [False, True], ids=["40 tokens", "none"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_kernels_and_torch_agree(
    dtype: torch.dtype, empty: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torchs = _there_and_back(dtype, empty)
    asked: list[torch.dtype] = []

    def always(file: str, tensor: torch.Tensor) -> kernels.Kernels:
        asked.append(tensor.dtype)
        return kernels.beside(file)

    monkeypatch.setattr(kernels, "usable", always)
    ours = _there_and_back(dtype, empty)
    assert len(asked) >= 4
    tolerance = 2e-2 if dtype is torch.bfloat16 else 1e-5
    for a, b in zip(ours, torchs, strict=True):
        torch.testing.assert_close(a, b.to(a.dtype), rtol=tolerance, atol=tolerance)
