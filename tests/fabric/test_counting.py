"""FLOPs and bytes of single operations, against arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from grader.fabric import simulate

ATTENTION = (2, 4, 64, 32)  # batch, heads, sequence, head dim


def counted(program: Callable[[], Any]) -> tuple[int, int]:
    """(FLOPs, bytes) of what one rank computes."""
    result = simulate(lambda rank, _: program(), 1, compute=True)
    assert not result.findings, result.findings[0].message
    events = [event for event in result.record.events[0] if event.kind == "compute"]
    return sum(event.flops for event in events), sum(event.nbytes for event in events)


def cost(make: Callable[[], Any], use: Callable[[Any], Any]) -> tuple[int, int]:
    """Of use(make()), without make."""
    flops, nbytes = counted(lambda: use(make()))
    without = counted(make)
    return flops - without[0], nbytes - without[1]


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_product_counts_two_flops_for_each_multiplication(device: str) -> None:
    def make() -> tuple[torch.Tensor, torch.Tensor]:
        return torch.ones(8, 16, device=device), torch.ones(16, 32, device=device)

    flops, nbytes = cost(make, lambda ab: ab[0] @ ab[1])
    assert flops == 2 * 8 * 16 * 32
    assert nbytes == 4 * (8 * 16 + 16 * 32 + 8 * 32)


@pytest.mark.parametrize(
    ("use", "flops", "elements"),
    [
        (lambda x: x.add_(x), 1000, 3000),
        (lambda x: x + x, 1000, 3000),
        (lambda x: torch.add(x, x, out=torch.empty(1000)), 1000, 3000),
        (lambda x: x.copy_(torch.empty(1000)), 1000, 2000),
        (lambda x: x.zero_(), 1000, 1000),
        (lambda x: x.fill_(2.0), 1000, 1000),
        (lambda x: torch._foreach_add_([x], [x]), 1000, 3000),
        (lambda x: x.view(10, 100)[2:].t(), 0, 0),
    ],
    ids=["add_", "add", "out", "copy_", "zero_", "fill_", "foreach", "view"],
)
def test_elementwise_operations(use: Callable[[Any], Any], flops: int, elements: int) -> None:
    assert cost(lambda: torch.empty(1000), use) == (flops, 4 * elements)


@pytest.mark.parametrize(
    "pick",
    [
        lambda t, i: F.embedding(i, t),
        lambda t, i: t.index_select(0, i),
        lambda t, i: t[i],
    ],
    ids=["embedding", "index_select", "index"],
)
def test_picking_rows_reads_those_rows(pick: Callable[[Any, Any], Any]) -> None:
    def make() -> tuple[torch.Tensor, torch.Tensor]:
        return torch.empty(10_000, 64), torch.empty(5, dtype=torch.int64).zero_()

    _, nbytes = cost(make, lambda ti: pick(*ti))
    assert nbytes == 2 * 5 * 64 * 4 + 5 * 8


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_counts_the_pairs_that_are_not_masked(device: str, causal: bool) -> None:
    batch, heads, length, width = ATTENTION
    pairs = batch * heads * (length * (length + 1) // 2 if causal else length * length)

    def run(backward: bool) -> tuple[int, int]:
        def make() -> torch.Tensor:
            return torch.empty(ATTENTION, device=device, requires_grad=True)

        def use(x: torch.Tensor) -> None:
            out = F.scaled_dot_product_attention(x, x, x, is_causal=causal)
            if backward:
                out.backward(torch.empty_like(out))

        return cost(make, use)

    flops, nbytes = run(backward=False)
    assert flops == pytest.approx(4 * pairs * width, rel=1e-6)
    one = 4 * batch * heads * length * width
    assert 4 * one <= nbytes <= 4 * one + 8 * batch * heads * length
    both, _ = run(backward=True)
    assert both - flops == pytest.approx(10 * pairs * width, rel=0.01)


def test_attention_on_meta_gives_shapes_and_gradients() -> None:
    def program() -> list[torch.Size]:
        q = torch.empty(2, 8, 16, 4, device="meta", requires_grad=True)
        k = torch.empty(2, 2, 32, 4, device="meta", requires_grad=True)
        out = F.scaled_dot_product_attention(q, k, k, enable_gqa=True)
        out.sum().backward()
        assert q.grad is not None and k.grad is not None
        return [out.shape, q.grad.shape, k.grad.shape]

    result = simulate(lambda rank, _: program(), 1, compute=True)
    assert result.returns[0] == [(2, 8, 16, 4), (2, 8, 16, 4), (2, 2, 32, 4)]


def test_a_mask_hides_pairs() -> None:
    def run(device: str) -> int:
        mask = torch.ones(64, 64, dtype=torch.bool).tril()
        q = torch.empty(ATTENTION, device=device)
        return counted(lambda: F.scaled_dot_product_attention(q, q, q, attn_mask=mask))[0]

    exact = 4 * 2 * 4 * (64 * 65 // 2) * 32
    assert run("meta") == pytest.approx(exact, rel=1e-3)
    assert run("cpu") == pytest.approx(exact, rel=0.01)
