"""Checks of `merge_attention` and of zigzag shares."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from grader.checks import a4_volume as volume
from grader.checks.a4_judges import expect
from grader.checks.a5_cases import CallCase, cut, run, run_all, words
from grader.checks.causes_a4 import IN_PLACE
from grader.checks.compare import assert_close
from grader.checks.framework import CheckFailed
from grader.checks.world import SimulatedCluster

MERGE = "a5.merge_attention"
SHARD, UNSHARD = "a5.zigzag_shard", "a5.zigzag_unshard"
NOTHING = float("-inf")


# merging ------------------------------------------------------------------------------------------


def halves(
    rng: torch.Generator, shape: tuple[int, ...], scale: float, dtype: torch.dtype, label: str
) -> CallCase:
    """Two partial attentions. scale: how large their log-sum-exps are."""
    out_a, out_b = (torch.randn(*shape, generator=rng).to(dtype) for _ in range(2))
    wide = torch.promote_types(dtype, torch.float32)
    lse_a, lse_b = (torch.randn(shape[:-1], generator=rng).to(wide) * scale for _ in range(2))
    return CallCase(
        label, 1, None, [[out_a, lse_a, out_b, lse_b]], judge=judge_merge, no_group=True
    )


def merge_values(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    """Shapes from a single query to four dimensions."""
    shapes = ((4,), (3, 5), (2, 2, 3, 4))
    cases = [halves(rng, s, 2.0, torch.float64, f"shape {s}") for s in shapes]
    run(cluster, MERGE, cases)


def merge_large(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    """Log-sum-exps that exp cannot take."""
    cases = []
    for scale in (1e3, 1e4):
        for dtype in (torch.float64, torch.float32):
            cases.append(halves(rng, (3, 4), scale, dtype, f"lse of about {scale:g}, {dtype}"))
    for sign in (1, -1):
        case = halves(rng, (3, 4), 1.0, torch.float32, f"both lse near {sign * 10000}")
        case.tensors[0][1] += sign * 1e4
        case.tensors[0][3] += sign * 1e4
        cases.append(case)
    run(cluster, MERGE, cases)


def merge_nothing(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    """Sides without a key: a, b, both, row by row."""
    for absent in ((0,), (2,), (0, 2)):
        names = " and ".join("a" if at == 0 else "b" for at in absent)
        case = halves(rng, (3, 4), 1.0, torch.float32, f"side {names} saw nothing in row 1")
        for at in absent:
            case.tensors[0][at][1] = 0
            case.tensors[0][at + 1][1] = NOTHING
        run(cluster, MERGE, [case])


def merge_dtypes(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    """16-bit outputs with float32 log-sum-exps."""
    dtypes = (torch.bfloat16, torch.float16)
    run(cluster, MERGE, [halves(rng, (5, 8), 3.0, d, f"{d} outputs") for d in dtypes])


def judge_merge(case: CallCase, answers: Sequence[Any]) -> None:
    """Both results, in float64 by the definition."""
    tensors = case.tensors[0]
    out_a, lse_a, out_b, lse_b = (t.double() for t in tensors)
    lse = torch.logaddexp(lse_a, lse_b)
    nobody = lse == NOTHING
    weights = [(x - lse).exp().masked_fill(nobody, 0.0).unsqueeze(-1) for x in (lse_a, lse_b)]
    out = weights[0] * out_a + weights[1] * out_b
    outputs = answers[0]["outputs"]
    if len(outputs) != 2:
        raise CheckFailed(f"{case.label}: expected (out, lse), got {len(outputs)} values")
    if isinstance(outputs[0], torch.Tensor) and bool(outputs[0].isnan().any()):
        cause = "exp overflows: subtract the larger of the two lse first"
        if bool((lse_a == NOTHING).any() | (lse_b == NOTHING).any()):
            cause = (
                "−inf − (−inf) is not a number: where neither side saw a key, out is 0 and lse −inf"
            )
        raise CheckFailed(f"{case.label}: out holds NaN: {outputs[0].flatten()[:6]}", cause=cause)
    plain = [x.exp().unsqueeze(-1) for x in (lse_a, lse_b)]
    suspects = [
        ((out_a + out_b) / 2, "averaged, not weighted by exp(lse_side − lse)"),
        (out_a + out_b, "added without weights"),
        (plain[0] * out_a + plain[1] * out_b, "the weights are not divided by their sum"),
        (weights[1] * out_a + weights[0] * out_b, "each side has the other's weight"),
    ]
    scale = weights[0] * out_a.abs() + weights[1] * out_b.abs()
    # A weight is exp of a difference, whose error is eps·|lse|.
    largest = torch.maximum(lse_a.nan_to_num(neginf=0).abs(), lse_b.nan_to_num(neginf=0).abs())
    scale = (scale + out_a.abs() + out_b.abs()) * (1 + largest.unsqueeze(-1))
    if tensors[0].dtype.itemsize == 2:
        scale = out_a.abs() + out_b.abs()
    assert_close(
        outputs[0], out, dtype=tensors[0].dtype, operations=16, scale=scale,
        where=f"{case.label}: out", suspects=suspects,
    )  # fmt: skip
    assert_close(
        outputs[1], lse, dtype=tensors[1].dtype, operations=16, scale=1 + largest,
        where=f"{case.label}: lse",
        suspects=[
            (torch.maximum(lse_a, lse_b), "lse is the larger of the two"),
            (lse_a + lse_b, "lse is the sum: it is a sum of logarithms, not a logarithm of a sum"),
        ],
    )  # fmt: skip


# zigzag -------------------------------------------------------------------------------------------

SPECS = (((3, 2), 0, torch.float64), ((2, 2, 3), 1, torch.int64), ((2, 4), -1, torch.bfloat16))


def shares(
    rng: torch.Generator, unshard: bool, world: int, ranks: tuple[int, ...] | None = None
) -> list[CallCase]:
    """Cases of both functions. A shape says how long one of the 2n chunks is."""
    size = world if ranks is None else len(ranks)
    cases = []
    for shape, dim, dtype in SPECS:
        whole_shape = list(shape)
        whole_shape[dim] *= 2 * size
        whole = torch.randint(0, 100, whole_shape, generator=rng).to(dtype)
        parts = [cut(whole, place, size, "zigzag", dim) for place in range(size)]
        label = words(world, ranks, f"{dtype} {tuple(whole_shape)}, dim={dim}")
        tensors = [[part] for part in parts] if unshard else [[whole]] * size
        expected = [whole] * size if unshard else parts
        case = CallCase(label, world, ranks, tensors, more=(dim,), judge=judge_shares)
        case.facts |= {"expected": expected, "whole": whole, "dim": dim}
        cases.append(case)
    return cases


def judge_shares(case: CallCase, answers: Sequence[Any]) -> None:
    """Moved, not computed: equal in every bit, in memory of its own."""
    size = len(case.members)
    whole, dim = case.facts["whole"], case.facts["dim"]
    for place, rank in enumerate(case.members):
        where, answer = f"{case.label}: rank {rank}", answers[place]
        wanted = case.facts["expected"][place]
        got = answer["outputs"][0]
        suspects = _shard_suspects(whole, dim, place, size)
        if len(case.tensors[place][0].flatten()) != whole.numel():
            suspects = [
                (
                    torch.cat([t[0] for t in case.tensors], dim),
                    "whole shares are joined in the order of ranks: their halves belong apart",
                ),
                (whole.flip(dim), "joined backwards"),
                (_forwards(case.tensors, dim), "second chunks are joined forwards, not backwards"),
            ]
        if whole.dtype.is_floating_point:
            wide = [(bad.double(), why) for bad, why in suspects]
            assert_close(
                got, wanted.double(), dtype=wanted.dtype, operations=0, where=where, suspects=wide
            )
        else:
            expect(got, wanted, where, partial(list, suspects), dtype=wanted.dtype)
        if not torch.equal(answer["tensors"][0], case.tensors[place][0]):
            raise CheckFailed(f"{where}: `tensor` was changed", cause=IN_PLACE)
        if not answer["own_memory"]:
            raise CheckFailed(
                f"{where}: the result shares memory with the argument",
                cause="a view keeps the whole sequence alive on every rank",
            )


def _forwards(tensors: list[list[torch.Tensor]], dim: int) -> torch.Tensor:
    halves = [each[0].chunk(2, dim) for each in tensors]
    return torch.cat([first for first, _ in halves] + [last for _, last in halves], dim)


def _shard_suspects(
    whole: torch.Tensor, dim: int, place: int, size: int
) -> list[tuple[torch.Tensor, str]]:
    chunks = whole.chunk(2 * size, dim)
    pairs = {
        "a contiguous share: chunks 2i and 2i + 1": (2 * place, 2 * place + 1),
        "chunks i and n + i, not i and 2n − 1 − i": (place, size + place),
        "the two chunks are in the wrong order": (2 * size - 1 - place, place),
    }
    return [(torch.cat([chunks[i] for i in pair], dim), why) for why, pair in pairs.items()]


def share_values(cluster: SimulatedCluster, rng: torch.Generator, unshard: bool) -> None:
    """1, 2, 3 and 4 ranks."""
    cases = [case for world in (1, 2, 3, 4) for case in shares(rng, unshard, world)]
    run_all(cluster, UNSHARD if unshard else SHARD, cases)


def share_bytes(cluster: SimulatedCluster, rng: torch.Generator, unshard: bool) -> int:
    """Nothing to cut, one all-gather to join."""
    case = shares(rng, unshard, 4)[0]
    outcome = run(cluster, UNSHARD if unshard else SHARD, [case])
    nbytes = 0
    for rank, (answer,) in enumerate(outcome.outputs):
        operations, _ = volume.phases(outcome.trace, rank, answer["marks"])
        whole = case.facts["whole"]
        allowed = volume.moved("all_gather", whole.numel() * whole.element_size(), 4)
        nbytes = volume.expect_phase(
            operations, 4, allowed if unshard else 0, f"{case.label}: rank {rank}",
            "one all-gather" if unshard else "nothing",
            cause="every rank has the whole tensor already" if not unshard
            else "an all-reduce moves twice what an all-gather does"
            if any(op.kind == "all_reduce" for op in operations) else None,
        )  # fmt: skip
    return nbytes
