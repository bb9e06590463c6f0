"""Whether tokens arrive at their experts, and come back right."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from grader.checks import a8_cases as made
from grader.checks import causes_a8 as causes
from grader.checks.a4_cases import GROUP, GROUP_WORLD, PAIR
from grader.checks.a4_judges import OPERATIONS, expect
from grader.checks.a8_cases import COMBINE, DISPATCH, Exchange, answers_of, exchange
from grader.checks.compare import assert_close
from grader.checks.framework import CheckFailed
from grader.checks.world import SimulatedCluster

#: Of a 16-bit result: weights, products and partial sums, each rounded.
_FEW = 10


def run_judged(
    cluster: SimulatedCluster, task: str, worlds: Sequence[Sequence[Exchange]], **options: Any
) -> None:
    """Run the cases of every world together, and judge their values."""
    for cases in worlds:
        try:
            outcome = made.run(cluster, task, cases, **options)
        except CheckFailed as failure:
            if " elements from group rank " in failure.message:
                failure.message += f"\nA token has {cases[0].tokens[0].shape[1]} elements here."
                failure.cause = causes.NO_COUNTS
            raise
        for number, case in enumerate(cases):
            judge(task, case, answers_of(outcome, case, number))


def judge(task: str, case: Exchange, answers: Sequence[Any]) -> None:
    """Values of `task` in one case. answers: by place.

    Where a rank has no fitting result, none takes gradients: values are judged before them.
    """
    places = [(place, f"{case.label}: rank {rank}") for place, rank in enumerate(case.members)]
    if task == DISPATCH:
        for place, where in places:
            judge_dispatched(case, answers[place], place, where)
        for place, where in places if case.gradients is not None else ():
            _judge_tokens_gradient(case, answers[place], place, where)
        return
    try:
        for place, where in places:
            _judge_combined(case, answers[place], place, where)
        for place, where in places if case.upstream is not None else ():
            _judge_gradients(case, answers[place], place, where)
    except CheckFailed:
        for place, where in places:  # combine cannot be right where dispatch is not
            judge_dispatched(case, answers[place], place, f"{where}, after dispatch")
        raise


# dispatch -----------------------------------------------------------------------------------------


def judge_dispatched(case: Exchange, answer: Any, place: int, where: str) -> None:
    """Rows, counts and the gradient of the tokens."""
    wanted = case.rows(place)
    low = place * case.per_rank
    counts = torch.tensor(
        [sum(row.expert == low + e for row in wanted) for e in range(case.per_rank)]
    )
    assert_close(
        answer["counts"],
        counts,
        dtype=torch.int64,
        operations=0,
        where=f"{where}: expert_counts",
        suspects=causes.of_counts(case, place),
    )
    rows = _stacked(case, wanted)
    dtype = case.tokens[place].dtype
    assert_close(
        answer["rows"],
        rows.double(),
        dtype=dtype,
        operations=1,
        where=f"{where}: rows",
        suspects=[(_stacked(case, o).double(), why) for o, why in causes.other_orders(case, place)],
        cause=causes.why_other_rows(answer["rows"], rows),
    )
    if not answer["kept"]:
        raise CheckFailed(f"{where}: an argument was changed", cause="done in place")


def _judge_tokens_gradient(case: Exchange, answer: Any, place: int, where: str) -> None:
    if answer["tokens_gradient"] is None:
        raise CheckFailed(f"{where}: the tokens got no gradient", cause=causes.CUT_OFF)
    expect(
        answer["tokens_gradient"],
        tokens_gradient(case, place),
        f"{where}: gradient of the tokens",
        partial(causes.of_tokens_gradient, case, place),
    )


def _stacked(case: Exchange, rows: Sequence[made.Row]) -> torch.Tensor:
    if not rows:
        return case.tokens[0][:0]
    return torch.stack([case.tokens[row.source][row.token] for row in rows])


def tokens_gradient(case: Exchange, place: int) -> torch.Tensor:
    """The sum over a token's rows, wherever they are."""
    assert case.gradients is not None
    total = torch.zeros_like(case.tokens[place])
    for there in range(case.size):
        for number, row in enumerate(case.rows(there)):
            if row.source == place:
                total[row.token] += case.gradients[there][number]
    return total


# combine ------------------------------------------------------------------------------------------


def _judge_combined(case: Exchange, answer: Any, place: int, where: str) -> None:
    assert case.outputs is not None and case.weights is not None
    dtype = case.outputs[place].dtype
    operations = OPERATIONS if dtype is torch.float64 else _FEW
    if isinstance(answer["out"], torch.Tensor) and answer["out"].dtype != dtype:
        raise CheckFailed(
            f"{where}: result: expected dtype {dtype}, got {answer['out'].dtype}",
            cause="the result has the dtype of the weights, or of the product with them: it must "
            "have that of expert_output",
        )
    expect(
        answer["out"],
        combined(case, place),
        f"{where}: result",
        partial(causes.of_combined, case, place),
        dtype=dtype,
        operations=operations,
    )
    if not answer["combine_kept"]:
        raise CheckFailed(f"{where}: an argument was changed", cause="done in place")


def _judge_gradients(case: Exchange, answer: Any, place: int, where: str) -> None:
    got, wanted = answer["weights_gradient"], weights_gradient(case, place)
    if got is None:
        raise CheckFailed(f"{where}: `weights` got no gradient", cause=causes.NO_WEIGHTS_GRADIENT)
    expect(
        got,
        wanted,
        f"{where}: gradient of weights",
        partial(causes.of_weights_gradient, case, place, wanted),
    )
    got, wanted = answer["output_gradient"], output_gradient(case, place)
    if got is None:
        raise CheckFailed(f"{where}: `expert_output` got no gradient", cause=causes.CUT_OFF)
    expect(
        got,
        wanted,
        f"{where}: gradient of expert_output",
        partial(causes.of_output_gradient, case, place, wanted),
    )


def combined(case: Exchange, place: int) -> torch.Tensor:
    """The weighted sum of every token of a place, in float64."""
    assert case.outputs is not None and case.weights is not None
    total = torch.zeros(case.tokens[place].shape, dtype=torch.float64)
    for there in range(case.size):
        for number, row in enumerate(case.rows(there)):
            if row.source == place:
                weight = case.weights[place][row.token, row.choice].double()
                total[row.token] += weight * case.outputs[there][number].double()
    return total


def weights_gradient(case: Exchange, place: int) -> torch.Tensor:
    """Products of the result's gradient with the experts' results; 0 where dropped."""
    assert case.outputs is not None and case.weights is not None and case.upstream is not None
    total = torch.zeros_like(case.weights[place])
    for there in range(case.size):
        for number, row in enumerate(case.rows(there)):
            if row.source == place:
                product = case.upstream[place][row.token] @ case.outputs[there][number]
                total[row.token, row.choice] = product
    return total


def output_gradient(case: Exchange, place: int) -> torch.Tensor:
    """The gradient of the tokens' results, weighted, for every row of a place."""
    assert case.weights is not None and case.upstream is not None
    rows = [
        case.weights[row.source][row.token, row.choice] * case.upstream[row.source][row.token]
        for row in case.rows(place)
    ]
    return torch.stack(rows) if rows else case.tokens[place][:0]


# Cases --------------------------------------------------------------------------------------------


def groups(cluster: SimulatedCluster, rng: torch.Generator, task: str) -> None:
    """Sub-groups whose group ranks are not global ranks."""
    options: dict[str, Any] = {"gradient": True, "combines": task == COMBINE}
    cases = [exchange(rng, GROUP_WORLD, ranks, **options) for ranks in (GROUP, PAIR)]
    causes.by_group(lambda some: run_judged(cluster, task, [some]), cases)


def dtypes(rng: torch.Generator, task: str) -> list[list[Exchange]]:
    """Other dtypes, 32-bit indices, tokens that are not contiguous."""
    options: dict[str, Any] = {"combines": task == COMBINE}
    narrow = [
        exchange(rng, 3, dtype=dtype, label=str(dtype).removeprefix("torch."), **options)
        for dtype in (torch.bfloat16, torch.float32)
    ]
    short = exchange(rng, 3, label="int32 indices", **options)
    short.indices = [indices.to(torch.int32) for indices in short.indices]
    strided = exchange(rng, 3, label="not contiguous", **options)
    strided.tokens = [
        tokens.t().clone(memory_format=torch.contiguous_format).t() for tokens in strided.tokens
    ]
    mixed = exchange(rng, 3, dtype=torch.bfloat16, label="bfloat16, weights float32", **options)
    if mixed.weights is not None:
        mixed.weights = [weights.float() for weights in mixed.weights]
    return [[*narrow, short, strided, mixed]]
