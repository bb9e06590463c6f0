"""From wrong rows and gradients to their likely cause, in one line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from grader.checks.a8_cases import Exchange, Row
from grader.checks.framework import CheckFailed
from grader.checks.world import CAUSES
from grader.fabric.record import Operation

Suspects = list[tuple[torch.Tensor, str]]

SUB_GROUP = (
    "wrong in a sub-group, where a group rank is not the global rank: sizes, ranks and collectives "
    "must all be the group's"
)
DEFAULT_GROUP = (
    "a collective also waits for ranks that are not in the group: it runs in the default group. "
    "Every collective must get the argument `group`"
)
GLOBAL_RANK = (
    "the experts of this rank are found by its global rank: they are those of its rank in the group"
)
NO_COUNTS = (
    "how much arrives is guessed, not asked: ranks send each other different numbers of tokens, "
    "so exchange the counts first"
)
TO_EACH_EXPERT = (
    "a token travels once per expert, not once per rank: send it once to each rank, and copy it "
    "there for every expert"
)
ONE_BY_ONE = (
    "every expert's result travels back by itself: the rank of the experts must add up the "
    "weighted results of a token, and send back one sum"
)
CUT_OFF = "the result is cut off from autograd's graph"
NO_WEIGHTS_GRADIENT = (
    "the weights' gradient is missing: the router would never learn which experts are good"
)
TOO_LATE = (
    "the arguments are checked only after communication has begun (a barrier counts, too): check "
    "them before anything else"
)


@contextmanager
def in_sub_group(ranks: Sequence[int]) -> Iterator[None]:
    """Failures inside that say nothing better are those of this sub-group, which they name."""
    try:
        yield
    except CheckFailed as failure:
        if failure.status in ("failed", "error") and failure.cause in (None, *CAUSES.values()):
            failure.cause = DEFAULT_GROUP if _waits_outside(failure.message, ranks) else SUB_GROUP
            if not failure.message.startswith("group "):
                failure.message = f"in the group {list(ranks)}: {failure.message}"
        raise


def by_group(run: Callable[[list[Any]], object], cases: Sequence[Any]) -> None:
    """Run cases of several groups in one world; after a failure each alone, to name the group."""
    try:
        run([*cases])
        return
    except CheckFailed as raised:
        failure = raised
    if failure.status in ("failed", "error"):
        for case in cases:
            with in_sub_group(case.members):
                run([case])
        failure.cause = failure.cause or SUB_GROUP
    raise failure


def _waits_outside(message: str, ranks: Sequence[int]) -> bool:
    """Whether it tells of a deadlock in which a rank outside the group is waited for."""
    gone = re.match(r"deadlock: (.+) returned without doing what others wait for", message)
    return gone is not None and not {int(n) for n in re.findall(r"\d+", gone[1])} <= {*ranks}


# dispatch -----------------------------------------------------------------------------------------


def of_counts(case: Exchange, place: int) -> Suspects:
    """Wrong expert_counts."""
    low, per_rank = place * case.per_rank, case.per_rank
    mine = torch.bincount(case.indices[place].flatten().long() + 1, minlength=case.experts + 1)[1:]
    everybody = torch.stack(
        [
            torch.bincount(i.flatten().long() + 1, minlength=case.experts + 1)[1:]
            for i in case.indices
        ]
    ).sum(0)
    found: Suspects = [
        (mine[low : low + per_rank], "only this rank's own tokens are counted"),
        (everybody, "counts of all experts: expert_counts is of this rank's E/n"),
        (mine, "counts of this rank's tokens: expert_counts is what arrived"),
    ]
    firsts = torch.zeros(per_rank, dtype=torch.int64)
    seen = set()
    for row in sorted(case.rows(place), key=lambda r: (r.source, r.token, r.choice)):
        if (row.source, row.token) not in seen:
            firsts[row.expert - low] += 1
            seen.add((row.source, row.token))
    found.append((firsts, "a token with two experts on this rank is given to one of them only"))
    if case.ranks is not None and case.members[place] != place:
        found.append((_of_global_rank(case, place), GLOBAL_RANK))
    return found


def _of_global_rank(case: Exchange, place: int) -> torch.Tensor:
    """Choices, by the tokens that arrive, of the experts of the place that is the global rank."""
    low = case.members[place] * case.per_rank
    arrived = [case.indices[source][case.pairs(source, place)] for source in range(case.size)]
    chosen = torch.cat([each.flatten().long() for each in arrived])
    return torch.stack([(chosen == low + local).sum() for local in range(case.per_rank)])


def other_orders(case: Exchange, place: int) -> list[tuple[list[Row], str]]:
    """The right rows in wrong orders."""
    rows = case.rows(place)
    late = "by expert, but not by source rank and token within it"
    return [
        (
            sorted(rows, key=lambda r: (r.source, r.expert, r.token)),
            "ordered by source rank, then expert: the rows of an expert are not together",
        ),
        (
            sorted(rows, key=lambda r: (r.source, r.token, r.expert)),
            "the rows are ordered as they arrived, by source rank and token: they must be sorted "
            "by expert first",
        ),
        (sorted(rows, key=lambda r: (r.expert, -r.source, r.token)), late),
        (sorted(rows, key=lambda r: (r.expert, r.source, -r.token)), late),
        (sorted(rows, key=lambda r: (r.expert, r.token, r.source)), late),
        (
            sorted(rows, key=lambda r: (r.expert, r.source, r.choice, r.token)),
            "by expert and source, but by choice before token",
        ),
    ]


def why_other_rows(got: object, wanted: torch.Tensor) -> str | None:
    """Whether the right rows came in some other order."""
    if not isinstance(got, torch.Tensor) or got.shape != wanted.shape or not len(got):
        return None
    left, right = sorted(got.tolist()), sorted(wanted.to(got.dtype).tolist())
    return "the right rows, in another order" if left == right else None


def of_tokens_gradient(case: Exchange, place: int) -> Suspects:
    """Wrong gradients of dispatch's tokens."""
    assert case.gradients is not None
    total = torch.zeros_like(case.tokens[place])
    last, first, home = total.clone(), total.clone(), total.clone()
    uses = torch.zeros(len(total), 1, dtype=total.dtype)
    for there in range(case.size):
        for number, row in enumerate(case.rows(there)):
            if row.source != place:
                continue
            gradient = case.gradients[there][number]
            if not uses[row.token]:
                first[row.token] = gradient
            total[row.token] += gradient
            last[row.token] = gradient
            uses[row.token] += 1
            if there == place:
                home[row.token] += gradient
    return [
        (last, "one of a token's gradients overwrites the others: they must be added up"),
        (first, "one of a token's gradients overwrites the others: they must be added up"),
        (total / uses.clamp(min=1), "a token's gradients are averaged, not added up"),
        (home, "gradients of other ranks do not come back"),
        (total / case.size, "the gradient is averaged over the ranks"),
        (total * case.size, "the gradient is counted once for each rank"),
    ]


# combine ------------------------------------------------------------------------------------------


def of_combined(case: Exchange, place: int) -> Suspects:
    """Wrong results of combine."""
    assert case.outputs is not None and case.weights is not None
    shape = case.tokens[place].shape
    names = ("plain", "mean", "home", "first", "by_row")
    sums = {name: torch.zeros(shape, dtype=torch.float64) for name in names}
    uses = torch.zeros(shape[0], 1, dtype=torch.float64)
    weights = case.weights[place].double()
    for there in range(case.size):
        for number, row in enumerate(case.rows(there)):
            if row.source != place:
                continue
            output = case.outputs[there][number].double()
            weighted = weights[row.token, row.choice] * output
            uses[row.token] += 1
            sums["plain"][row.token] += output
            if there == place:
                sums["home"][row.token] += weighted
            if row.choice == 0:
                sums["first"][row.token] += weighted
            place_of = case.weights[there].double().flatten()
            if len(place_of):
                sums["by_row"][row.token] += place_of[min(number, len(place_of) - 1)] * output
    return [
        (sums["plain"], "the experts' results are added up without their weights"),
        (sums["plain"] / uses.clamp(min=1), "the experts' results are averaged, not weighted"),
        (
            sums["home"],
            "the results of other ranks' experts are missing: only those of this rank's own "
            "experts are added up",
        ),
        (sums["first"], "only the first choice counts"),
        (sums["by_row"], "weights are taken in the order of rows, not of (token, choice)"),
    ]


def of_weights_gradient(case: Exchange, place: int, wanted: torch.Tensor) -> Suspects:
    """Wrong gradients of combine's weights."""
    home = torch.zeros_like(wanted)
    for row in case.rows(place):
        if row.source == place:
            home[row.token, row.choice] = wanted[row.token, row.choice]
    return [
        (torch.zeros_like(wanted), NO_WEIGHTS_GRADIENT),
        (home, "only the weights of this rank's own experts get a gradient"),
        (wanted / case.size, "the gradient is averaged over the ranks"),
    ]


def of_output_gradient(case: Exchange, place: int, wanted: torch.Tensor) -> Suspects:
    """Wrong gradients of expert_output."""
    assert case.upstream is not None
    rows = case.rows(place)
    plain = [case.upstream[row.source][row.token] for row in rows]
    home = [wanted[i] if row.source == place else 0 * wanted[i] for i, row in enumerate(rows)]
    found: Suspects = [
        (wanted / case.size, "the gradient is averaged over the ranks"),
        (wanted * case.size, "the gradient is counted once for each rank"),
    ]
    if rows:
        found += [
            (torch.stack(plain), "the gradient is not multiplied by the weights"),
            (torch.stack(home), "gradients of other ranks' tokens do not arrive"),
        ]
    return found


def of_volume(
    case: Exchange, operations: Sequence[Operation], place: int, rows: float, wanted: int
) -> str | None:
    """Why other rows than needed were sent."""
    kinds = {op.kind for op in operations if op.nbytes >= case.tokens[place].shape[1]}
    if kinds & {"all_gather", "broadcast"}:
        return "all tokens go to all ranks: send each only where one of its experts is"
    if kinds & {"all_reduce", "reduce_scatter"}:
        return "results of all tokens are reduced over all ranks: return them to their own only"
    going = [int(row) for row in _assignments(case, place)]
    if any(abs(rows - count) < 0.8 for count in going):
        return ONE_BY_ONE if case.outputs is not None else TO_EACH_EXPERT
    if rows > wanted:
        return (
            "what is sent is padded to a fixed size: exchange the counts first, then send each "
            "rank just its own number of rows"
        )
    return None


def _assignments(case: Exchange, place: int) -> tuple[int, int]:
    """Rows out and in, if each assignment had its own."""
    out = sum(
        r.source == place for there in range(case.size) if there != place for r in case.rows(there)
    )
    arriving = sum(r.source != place for r in case.rows(place))
    return out, arriving
