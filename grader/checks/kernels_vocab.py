"""Cases of `vocab_cross_entropy`: shapes, alignments, shards, ±10⁴ logits, ignored targets."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from grader.checks.compare import assert_close
from grader.checks.kernels_run import SHAPES, Case, Outputs, mixed, normal, suffix

#: tokens, vocab, vocab_start, elements by which logits and gradient lie off 256 bytes.
SIZES = (
    (0, 5, 0, 0, 0),
    (1, 1, 0, 0, 0),
    (3, 2, 4, 1, 1),
    (5, 7, 7, 0, 3),
    (33, 16, 16, 0, 0),
    (17, 31, 62, 2, 2),
    (9, 64, 0, 4, 4),
    (70, 33, 33, 0, 0),
    (4, 255, 510, 3, 0),
    (6, 1000, 0, 0, 0),
    (3, 4099, 4099, 1, 1),
)
IGNORED = -100
_MAGNITUDES = (1.0, 30.0, 1e4)


def forward_cases(rng: torch.Generator, dtype: torch.dtype) -> list[Case]:
    """Launches over sizes, magnitudes and launch shapes in turn."""
    return [_forward(rng, dtype, i, *size) for i, size in enumerate(SIZES * 2)]


def backward_cases(rng: torch.Generator, dtype: torch.dtype) -> list[Case]:
    """As `forward_cases`."""
    return [_backward(rng, dtype, i, *size) for i, size in enumerate(SIZES * 2)]


def _operands(
    rng: torch.Generator, dtype: torch.dtype, i: int, tokens: int, vocab: int, start: int
) -> tuple[torch.Tensor, torch.Tensor]:
    logits = (normal(rng, tokens, vocab) * _MAGNITUDES[i % 3]).to(dtype)
    # Targets on this shard, on others, and ignored ones.
    target = torch.randint(0, start + 2 * vocab, (tokens,), generator=rng)
    if tokens > 2:
        target[0], target[1], target[2] = start + vocab - 1, start + vocab, IGNORED
    return logits, target


def _forward(
    rng: torch.Generator,
    dtype: torch.dtype,
    i: int,
    tokens: int,
    vocab: int,
    start: int,
    shift: int,
    _: int,
) -> Case:
    logits, target = _operands(rng, dtype, i, tokens, vocab, start)
    results = [torch.full((tokens,), torch.nan) for _ in range(3)]
    return Case(
        f"vocab_cross_entropy_forward_{suffix(dtype)}",
        [*results, logits, target, tokens, vocab, start],
        partial(_judge_forward, logits, target, start),
        _label(tokens, vocab, start, i),
        SHAPES[i % 4],
        (0, 0, 0, shift, 0, 0, 0, 0),
    )


def _label(tokens: int, vocab: int, start: int, i: int) -> str:
    return (
        f"{tokens} tokens, vocab {vocab} from {start} on, logits of magnitude "
        f"{_MAGNITUDES[i % 3]:g}"
    )


def _judge_forward(logits: torch.Tensor, target: torch.Tensor, start: int, got: Outputs) -> None:
    x = logits.double()
    vocab = x.shape[1]
    most = x.amax(1)
    exact: dict[str, Any] = {"dtype": torch.float32, "operations": 0}
    assert_close(
        got["row_max"],
        most,
        **exact,
        where="row_max",
        suspects=[(most.clamp(min=0), "the maximum starts at 0 instead of minus infinity")],
    )
    distance = (x - most[:, None]).abs()
    terms = (-distance).exp()
    total = terms.sum(1)
    assert_close(
        got["sum_exp"],
        total,
        dtype=torch.float32,
        operations=vocab + 8,
        scale=(terms * (1 + distance)).sum(1),
        where="sum_exp",
        suspects=[
            (x.exp().sum(1), "the maximum is not subtracted before the exponential"),
            (total.log(), "that is its logarithm"),
        ],
        cause="the maximum is not subtracted before the exponential, or terms are lost on the way "
        "from the threads to the sum",
    )
    local = target - start
    here = (local >= 0) & (local < vocab)
    index = local.clamp(0, max(vocab - 1, 0))[:, None]
    chosen = torch.where(here, x.gather(1, index)[:, 0], 0.0)
    assert_close(
        got["target_logit"],
        chosen,
        **exact,
        where="target_logit",
        cause="a target counts in the whole vocabulary: only those in vocab_start … vocab_start + "
        "vocab - 1 are on this shard, the others give 0",
    )


def _backward(
    rng: torch.Generator,
    dtype: torch.dtype,
    i: int,
    tokens: int,
    vocab: int,
    start: int,
    shift: int,
    out_shift: int,
) -> Case:
    logits, target = _operands(rng, dtype, i, tokens, vocab, start)
    # Other shards hold some of the probability.
    lse = (logits.double().logsumexp(1) + torch.rand(tokens, generator=rng)).float()
    grad_loss = normal(rng, tokens)
    result = torch.full((tokens, vocab), torch.nan, dtype=dtype)
    return Case(
        f"vocab_cross_entropy_backward_{suffix(dtype)}",
        [result, logits, target, lse, grad_loss, tokens, vocab, start, IGNORED],
        partial(_judge_backward, (logits, target, lse, grad_loss), start),
        _label(tokens, vocab, start, i),
        SHAPES[i % 4],
        (out_shift, shift, *[0] * 7),
    )


def _judge_backward(operands: tuple[torch.Tensor, ...], start: int, got: Outputs) -> None:
    logits, target, lse, grad_loss = operands
    x, vocab = logits.double(), logits.shape[1]
    kept = (target != IGNORED).double()[:, None]
    g = grad_loss.double()[:, None]
    exponent = x - lse.double()[:, None]
    share = exponent.exp()
    columns = torch.arange(vocab) + start
    hit = (columns == target[:, None]).double()
    local = (torch.arange(vocab) == target[:, None]).double()
    expected = kept * g * (share - hit)
    scale = kept * g.abs() * (share * (1 + exponent.abs()) + hit)
    assert_close(
        got["grad_logits"],
        expected,
        **mixed(logits.dtype, expected, scale, 8),
        where="grad_logits",
        suspects=[
            (g * (share - hit), "tokens whose target is ignore_index have no gradient"),
            (kept * g * share, "the 1 at the target's column is missing"),
            (kept * (share - hit), "grad_loss is not used"),
            (kept * g * (share - local), "vocab_start is not subtracted from the target"),
            (kept * g * (x.softmax(1) - hit), "the shard's own sum is used, not logsumexp"),
        ],
        cause="grad_loss (exp(logit - logsumexp) - 1 at the target's column), and 0 in rows whose "
        "target is ignore_index",
    )
