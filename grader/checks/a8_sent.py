"""What `dispatch` and `combine` send, in how many rounds, and what they refuse before sending."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from grader.checks import a4_volume as volume
from grader.checks import a8_cases as made
from grader.checks import causes_a8 as causes
from grader.checks.a4_cases import GROUP
from grader.checks.a4_judges import judge_refusal
from grader.checks.a8_cases import COMBINE, DISPATCH, Exchange, answers_of, exchange
from grader.checks.a8_exchange import judge
from grader.checks.framework import CheckFailed
from grader.checks.world import SimulatedCluster
from grader.fabric.record import Operation

Metrics = dict[str, Any]

# Volume -------------------------------------------------------------------------------------------


def sent(operations: Sequence[Operation], size: int, place: int) -> int:
    """Bytes that a place sends to others."""
    exchanges = [op for op in operations if op.kind == "all_to_all"]
    total = volume.sent([op for op in operations if op.kind != "all_to_all"], size)
    for op in exchanges:
        own = op.splits[place] if op.splits else op.nbytes // size
        total += op.nbytes - own
    return total


def metadata(case: Exchange, place: int) -> int:
    """Bytes beside the rows that a place may send in one direction."""
    k = case.indices[place].shape[1]
    pairs = sum(len(case.pairs(place, there)) for there in range(case.size))
    pairs += sum(len(case.pairs(there, place)) for there in range(case.size))
    return 8 * k * pairs + 16 * (case.experts + case.size)


def expect_rows(
    case: Exchange, operations: Sequence[Operation], place: int, rows: int, where: str, per: str
) -> int:
    """Exactly `rows` rows were sent to others, and not more beside them than allowed."""
    width = case.tokens[place].shape[1] * case.tokens[place].element_size()
    least, allowed = rows * width, rows * width + metadata(case, place)
    nbytes = sent(operations, case.size, place)
    if not least <= nbytes <= allowed:
        raise CheckFailed(
            f"{where}: {volume.words(operations)}; without what stays on this rank that is "
            f"{nbytes} bytes, as much as {nbytes / width:.1f} rows; expected {rows} rows of "
            f"{width} bytes ({per}), and at most {allowed - least} bytes beside them",
            cause=causes.of_volume(case, operations, place, nbytes / width, rows),
        )
    return nbytes


def pairs_out(case: Exchange, place: int) -> int:
    """(token, other rank) pairs of a place's own tokens."""
    return sum(len(case.pairs(place, there)) for there in range(case.size) if there != place)


def pairs_in(case: Exchange, place: int) -> int:
    """(token, this rank) pairs of other places' tokens."""
    return sum(len(case.pairs(there, place)) for there in range(case.size) if there != place)


OUT = "each token once to every other rank that has one of its experts"
BACK = "one for every token of another rank that has experts here"


def judge_volume(
    cluster: SimulatedCluster, rng: torch.Generator, metrics: Metrics, task: str
) -> None:
    """Rows sent forward and backward, in the world and in a sub-group."""
    for ranks in (None, GROUP):
        case = exchange(
            rng, 4, ranks, per_rank=3, k=4, counts=[7, 5, 6, 4][: 4 if ranks is None else 3],
            hidden=256, gradient=True, combines=task == COMBINE,
        )  # fmt: skip
        outcome = made.run(cluster, task, [case])
        answers = answers_of(outcome, case, 0)
        judge(task, case, answers)
        for place, rank in enumerate(case.members):
            marks = answers[place]["marks" if task == DISPATCH else "combine_marks"]
            forward, backward = volume.phases(outcome.trace, rank, marks)
            ways = [(pairs_out(case, place), OUT), (pairs_in(case, place), BACK)]
            if task == COMBINE:
                ways.reverse()
            where = f"{case.label}: rank {rank}"
            metrics["forward_bytes"] = expect_rows(
                case, forward, place, *ways[0][:1], f"{where}, forward", ways[0][1]
            )
            metrics["backward_bytes"] = expect_rows(
                case, backward, place, *ways[1][:1], f"{where}, backward", ways[1][1]
            )


#: Rounds of communication forward: dispatch needs counts, choices, tokens; combine weights, rows.
ROUNDS = {DISPATCH: 4, COMBINE: 3}


def judge_rounds(
    cluster: SimulatedCluster, rng: torch.Generator, metrics: Metrics, task: str
) -> None:
    """On 8 ranks few rounds: all partners at once, not one after the other."""
    case = exchange(rng, 8, per_rank=1, k=4, counts=[3] * 8, combines=task == COMBINE)
    case.quiet = task == COMBINE
    outcome = made.run(cluster, task, [case])
    judge(task, case, answers_of(outcome, case, 0))
    metrics["rounds"] = outcome.trace.rounds
    if outcome.trace.rounds > ROUNDS[task]:
        raise CheckFailed(
            f"{case.label}: {outcome.trace.rounds} rounds of communication, expected at most "
            f"{ROUNDS[task]}",
            cause="partners are served one after the other: exchange with all of them at once",
        )


# Refusals -----------------------------------------------------------------------------------------

#: A case, what its error must name, and which places are at fault.
Refusal = tuple[Exchange, tuple[object, ...], tuple[int, ...]]


def _case(rng: torch.Generator, label: str, **options: Any) -> Exchange:
    case = exchange(rng, 3, counts=(3, 3, 3), label=label, **options)
    case.refused = case.quiet = True
    return case


def _of_dispatch(rng: torch.Generator) -> list[Refusal]:
    odd = _case(rng, "7 experts")
    odd.experts = 7
    short = _case(rng, "4 tokens, indices of 3")
    short.tokens = [torch.zeros(4, 3, dtype=torch.float64)] * 3
    found: list[Refusal] = [(odd, (7, 3), (0, 1, 2)), (short, (4, 3), (0, 1, 2))]
    for place, wrong in ((0, 6), (2, -2)):
        outside = _case(rng, f"an index of {wrong} among 6 experts")
        outside.indices[place][1, 1] = wrong
        found.append((outside, (wrong, 6), (place,)))
    for case, _, _ in found:
        case.quiet = False
    return found


def _of_combine(rng: torch.Generator) -> list[Refusal]:
    narrow = _case(rng, "weights (3, 1), indices (3, 2)", combines=True)
    assert narrow.weights is not None
    narrow.weights = [weights[:, :1].clone() for weights in narrow.weights]
    found: list[Refusal] = [(narrow, ("(3, 2)", "(3, 1)"), (0, 1, 2))]
    long = _case(rng, "a row too many in expert_output", combines=True)
    assert long.outputs is not None
    long.outputs = [torch.zeros(40, 3, dtype=torch.float64)] * 3
    found += [(long, (len(long.rows(0)), 40), (0,)), (long, (len(long.rows(1)), 40), (1,))]
    return found


def judge_refusals(cluster: SimulatedCluster, rng: torch.Generator, task: str) -> None:
    """ValueError before anything is sent: of what is wrong everywhere, and of what is local.

    Of a local error in `dispatch` only the rank at fault calls: it must raise without having heard
    of anybody.
    """
    for case, words, places in _of_dispatch(rng) if task == DISPATCH else _of_combine(rng):
        inputs = [{"task": task, "cases": [case.of_rank(rank)]} for rank in range(case.world)]
        if task == DISPATCH:
            for place, given in enumerate(inputs):
                given["cases"] = given["cases"] if place in places else []
        who = [rank for rank in range(case.world) if inputs[rank]["cases"]]
        try:
            outcome = cluster.run("a8:exchanges", inputs, task=task, allow=None)
        except CheckFailed as failure:
            if "deadlock" in failure.message:
                failure.message = (
                    f"{case.label}: expected a ValueError from rank{'s' * (len(who) > 1)} "
                    f"{', '.join(map(str, who))}, without any communication\n{failure.message}"
                )
                failure.cause = causes.TOO_LATE
            raise
        for place in places:
            error = outcome.outputs[place][0].get("error")
            judge_refusal(error, words, f"{case.label}: rank {place}")
        total = sum(outcome.trace.bytes_sent)
        if total:
            raise CheckFailed(
                f"{case.label}: {total} bytes were sent by calls that must raise a ValueError, "
                f"expected none",
                cause=causes.TOO_LATE,
            )
