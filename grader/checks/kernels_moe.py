"""Cases of `moe_permute` (counts, positions, rows) and `moe_unpermute`."""

from __future__ import annotations

from functools import partial

import torch

from grader.checks.compare import assert_close
from grader.checks.framework import CheckFailed
from grader.checks.kernels_run import SHAPES, Case, Outputs, counted, mixed, normal, suffix
from grader.checks.kernels_suspects import bf16, cause_of_rounding, rounded_so

#: tokens, choices per token, experts, hidden, elements by which the rows lie off 256 bytes.
SIZES = (
    (0, 2, 4, 8, 0),
    (1, 1, 1, 1, 0),
    (5, 2, 3, 7, 1),
    (33, 1, 8, 16, 0),
    (40, 4, 16, 33, 0),
    (100, 2, 5, 64, 8),
    (300, 3, 2, 8, 0),
    (17, 8, 64, 100, 3),
    (9, 2, 1500, 24, 0),
)


def _experts(rng: torch.Generator, i: int, tokens: int, k: int, experts: int) -> torch.Tensor:
    """(tokens, k) int32, some dropped; in every third case one expert gets nearly all."""
    chosen = torch.randint(0, experts, (tokens, k), generator=rng, dtype=torch.int32)
    if i % 3 == 2:
        chosen[torch.rand(tokens, k, generator=rng) < 0.9] = experts // 2
    if i % 2:
        chosen[torch.rand(tokens, k, generator=rng) < 0.2] = -1
    return chosen


def _positions(chosen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(position of each assignment, assignments in the order of their experts)."""
    flat = chosen.flatten()
    order = torch.argsort(flat, stable=True)
    order = order[flat[order] >= 0]
    position = torch.full_like(flat, -1)
    position[order] = torch.arange(len(order), dtype=torch.int32)
    return position.view_as(chosen), order


def _label(i: int, tokens: int, k: int, experts: int, hidden: int) -> str:
    dropped = ", some dropped" if i % 2 else ""
    chosen = f"{counted(k, 'choice')} of {counted(experts, 'expert')}{dropped}"
    return f"{counted(tokens, 'token')} × {chosen}, hidden {hidden}"


def count_cases(rng: torch.Generator) -> list[Case]:
    """Launches of moe_permute_count; the counts already hold something."""
    made = []
    for i, (tokens, k, experts, hidden, _) in enumerate(SIZES):
        chosen = _experts(rng, i, tokens, k, experts)
        before = torch.randint(0, 9, (experts,), generator=rng, dtype=torch.int32)
        made.append(
            Case(
                "moe_permute_count",
                [before, chosen, tokens * k, experts],
                partial(_judge_count, before, chosen),
                _label(i, tokens, k, experts, hidden),
                SHAPES[i % 4],
            )
        )
    return made


def _judge_count(before: torch.Tensor, chosen: torch.Tensor, got: Outputs) -> None:
    kept = chosen[chosen >= 0].long()
    counts = torch.bincount(kept, minlength=len(before)).to(torch.int32)
    assert_close(
        got["counts"],
        before + counts,
        dtype=torch.int32,
        operations=0,
        where="counts",
        suspects=[(counts, "counts are overwritten, not added to")],
        cause="increments are lost (several threads need an atomic), or assignments are skipped",
    )


def position_cases(rng: torch.Generator) -> list[Case]:
    """Launches of moe_permute_position."""
    made = []
    for i, (tokens, k, experts, hidden, _) in enumerate(SIZES):
        chosen = _experts(rng, i, tokens, k, experts)
        counts = torch.bincount(chosen[chosen >= 0].long(), minlength=experts)
        begin = (counts.cumsum(0) - counts).to(torch.int32)
        made.append(
            Case(
                "moe_permute_position",
                [torch.full_like(chosen, -7), chosen, begin, tokens * k, experts],
                partial(_judge_position, chosen),
                _label(i, tokens, k, experts, hidden),
                SHAPES[(i + 1) % 4],
            )
        )
    return made


def _judge_position(chosen: torch.Tensor, got: Outputs) -> None:
    wanted, _ = _positions(chosen)
    found = got["position"]
    if found.shape == wanted.shape and not torch.equal(found, wanted):
        flat, kept = found.flatten(), chosen.flatten() >= 0
        if torch.equal(flat[kept].sort().values, wanted.flatten()[kept].sort().values):
            wrong = int((flat != wanted.flatten()).nonzero()[0])
            raise CheckFailed(
                f"assignment {wrong} (expert {int(chosen.flatten()[wrong])}) is at row "
                f"{int(flat[wrong])}, expected {int(wanted.flatten()[wrong])}",
                cause="the order within an expert is not that of the assignments: places that "
                "threads draw from an atomic counter come in any order",
            )
    assert_close(
        found,
        wanted,
        dtype=torch.int32,
        operations=0,
        where="position",
        cause="begin[e] + the number of earlier assignments to e; -1 for a dropped one",
    )


def permute_cases(rng: torch.Generator, dtype: torch.dtype) -> list[Case]:
    """Launches of moe_permute."""
    made = []
    for i, (tokens, k, experts, hidden, shift) in enumerate(SIZES):
        chosen = _experts(rng, i, tokens, k, experts)
        position, order = _positions(chosen)
        rows = normal(rng, tokens, hidden, dtype=dtype)
        made.append(
            Case(
                f"moe_permute_{suffix(dtype)}",
                [
                    torch.full((len(order), hidden), torch.nan, dtype=dtype),
                    *(rows, position, tokens * k, k, hidden),
                ],
                partial(_judge_permute, rows, order, k),
                _label(i, tokens, k, experts, hidden),
                SHAPES[(i + 2) % 4],
                (shift, shift, 0, 0, 0, 0),
            )
        )
    return made


def _judge_permute(tokens: torch.Tensor, order: torch.Tensor, k: int, got: Outputs) -> None:
    assert_close(
        got["rows"],
        tokens[order // k].double(),
        dtype=tokens.dtype,
        operations=0,
        where="rows",
        cause="row position[a] holds token a / k",
    )


def unpermute_cases(rng: torch.Generator, dtype: torch.dtype) -> list[Case]:
    """Launches of moe_unpermute."""
    made = []
    for i, (tokens, k, experts, hidden, shift) in enumerate(SIZES):
        position, order = _positions(_experts(rng, i, tokens, k, experts))
        rows = normal(rng, len(order), hidden, dtype=dtype)
        weights = torch.rand(tokens, k, generator=rng)
        out = torch.full((tokens, hidden), torch.nan, dtype=dtype)
        made.append(
            Case(
                f"moe_unpermute_{suffix(dtype)}",
                [out, rows, weights, position, tokens, k, hidden],
                partial(_judge_unpermute, rows, weights, position),
                _label(i, tokens, k, experts, hidden),
                SHAPES[i % 4],
                (shift, shift, *[0] * 5),
            )
        )
    return made


def _judge_unpermute(
    rows: torch.Tensor, weights: torch.Tensor, position: torch.Tensor, got: Outputs
) -> None:
    tokens, k = position.shape
    hidden = rows.shape[1]
    padded = torch.cat([rows.double(), torch.zeros(1, hidden, dtype=torch.float64)])
    taken = padded[position.long().flatten()].view(tokens, k, hidden)  # -1 takes the zeros
    terms = taken * weights.double()[..., None]
    expected = terms.sum(1)
    assert_close(
        got["out"],
        expected,
        **mixed(rows.dtype, expected, terms.abs().sum(1), k + 1),
        where="out",
        suspects=[
            (taken.sum(1), "the weights are not used"),
            (terms[:, 0], "only the first choice is used"),
            *rounded_so(got["out"], _in_bf16(bf16(terms)), expected, cause=_BFLOAT16),
            *rounded_so(got["out"], _in_bf16(terms), expected, cause=_BFLOAT16),
        ],
        cause=cause_of_rounding(got["out"], expected),
    )


_BFLOAT16 = "the sum over the choices is kept in bfloat16: add in float, round once, at the end"


def _in_bf16(terms: torch.Tensor) -> torch.Tensor:
    """Their sum over the choices, rounded after every addition."""
    total = torch.zeros_like(terms[:, 0])
    for term in terms.unbind(1):
        total = bf16(total + term)
    return total
