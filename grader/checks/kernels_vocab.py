"""Cases of `vocab_cross_entropy`: shapes, alignments, shards, ±10⁴ logits, ignored targets."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from grader.checks.compare import assert_close
from grader.checks.kernels_run import SHAPES, Case, Outputs, counted, mixed, normal, suffix
from grader.checks.kernels_suspects import (
    NO_TARGET_COLUMN,
    TARGET_LOGIT_0,
    alike,
    cause_of_rounding,
    kept_in_bf16,
    largest,
)

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
        f"{counted(tokens, 'token')}, vocab = {vocab}, vocab_start = {start}, logits of magnitude "
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
        suspects=[
            (most.clamp(min=0), "the maximum starts at 0 instead of minus infinity"),
            (
                x.reshape(vocab, -1).amax(0),
                "the logits are read as (vocab, tokens), but they are (tokens, vocab): the logits "
                "of a token lie side by side",
            ),
        ],
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
            *kept_in_bf16(
                got["sum_exp"],
                total,
                cause="the sum is kept in bfloat16: terms and sum must be float",
            ),
            *alike(
                got["sum_exp"],
                x.exp().sum(1),
                total,
                cause="the maximum is not subtracted before the exponential",
            ),
            (total.log(), "that is its logarithm"),
        ],
        cause=_cause_of_sum(got["sum_exp"], total),
    )
    chosen, unshifted = _chosen(x, target - start), _chosen(x, target)
    assert_close(
        got["target_logit"],
        chosen,
        **exact,
        where="target_logit",
        suspects=[
            (torch.zeros_like(chosen), TARGET_LOGIT_0),
            (
                unshifted,
                "vocab_start is not subtracted from target, an index into the whole vocabulary",
            ),
        ],
        cause="target is an index into the whole vocabulary: only vocab_start … vocab_start + "
        "vocab - 1 are on this shard, other targets give 0",
    )


def _chosen(x: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
    """The logit in each token's column, 0 where there is no such column."""
    here = (column >= 0) & (column < x.shape[1])
    index = column.clamp(0, max(x.shape[1] - 1, 0))[:, None]
    return torch.where(here, x.gather(1, index)[:, 0], 0.0)


def _cause_of_sum(got: torch.Tensor, total: torch.Tensor) -> str | None:
    if bool((torch.isinf(got) | (got == 0)).any()):
        return "the exponentials overflow, or all become 0: the maximum is not subtracted first"
    wrong = ~torch.isclose(got.double(), total, rtol=1e-4)
    if bool((got < total)[wrong].all()):
        return "the sum is too small: terms are lost on the way from the threads to the sum"
    if bool((got > total)[wrong].all()):
        return "the sum is too large: terms are added more than once, by several threads or warps"
    return None


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
    found = got["grad_logits"]
    forgotten = alike(
        found,
        kept * g * share,
        expected,
        cause="1 is not subtracted at the target's column",
    )
    unshifted = alike(
        found,
        kept * g * (share - local),
        expected,
        cause="vocab_start is not subtracted from target, an index into the whole vocabulary",
    )
    assert_close(
        found,
        expected,
        **mixed(logits.dtype, expected, scale, 8),
        where="grad_logits",
        suspects=[
            *alike(
                found,
                g * (share - hit),
                expected,
                cause="rows whose target is ignore_index get a gradient: it must be 0 there",
            ),
            *([(found.double(), NO_TARGET_COLUMN)] if forgotten and unshifted else []),
            *forgotten,
            *unshifted,
            (kept * (share - hit), "grad_loss is not used"),
            *alike(
                found,
                kept * g * (x.softmax(1) - hit),
                expected,
                cause="the shard's own sum is used, not logsumexp",
            ),
        ],
        cause=_cause_of_gradient(found, expected, kept, hit),
    )


def _cause_of_gradient(
    got: torch.Tensor, expected: torch.Tensor, kept: torch.Tensor, hit: torch.Tensor
) -> str | None:
    wrong = ~torch.isclose(got.double(), expected, rtol=1e-2, atol=1e-3 * largest(expected))
    if bool(wrong.any()) and not bool((wrong & (kept > 0)).any()):
        return "only rows whose target is ignore_index are wrong: their gradient must be 0"
    if bool(wrong.any()) and not bool((wrong & (hit == 0)).any()):
        return "only the target's columns are wrong: there 1 is subtracted from the exponential"
    return cause_of_rounding(got, expected)
