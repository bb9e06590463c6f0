"""Cases of assignment 0 about all-reduce: published formulas, and the simulated clock."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from grader.checks.a0_cases import Case, Suspects, expect_number
from grader.checks.framework import CheckFailed
from grader.fabric.clock import replay
from grader.fabric.cluster import uniform
from grader.fabric.record import Event, Operation, Record

#: What a case with another number of ranks is, where that needs words of its own.
_ODD = {
    "recursive_doubling": "not a power of two, halving",
    "halving_doubling": "not a power of two, halving",
    "binomial_tree": "not a power of two, tree",
}
ALGORITHMS = (
    "pairwise",
    "parameter_server",
    "ring",
    "recursive_doubling",
    "halving_doubling",
    "binomial_tree",
    "in_network",
)
RANKS = (2, 3, 4, 5, 8, 12, 16, 64, 100, 256)
ALPHA, BETA, GAMMA = 5e-6, 1 / 50e9, 1 / 200e9

# A message: (step, sender, receiver, share of the vector). Messages of one step and rank are posted
# together; a rank posts those of its next step when all of this one have arrived.
Message = tuple[int, int, int, float]


def terms(algorithm: str, p: int) -> tuple[float, float, float]:
    """(α, nβ, nγ) of Thakur et al. 2005, table by table."""
    lg = math.floor(math.log2(p) + 1e-12)
    q = 2**lg
    x = 0 if q == p else 1
    up = math.ceil(math.log2(p) - 1e-12)
    return {
        "pairwise": (p - 1, p - 1, p - 1),
        "parameter_server": (2, 2 * (p - 1), p - 1),
        "ring": (2 * (p - 1), 2 * (p - 1) / p, (p - 1) / p),
        "recursive_doubling": (lg + 2 * x, lg + 2 * x, lg + x),
        "halving_doubling": (2 * lg + 2 * x, 2 * (q - 1) / q + 2 * x, (q - 1) / q + x),
        "binomial_tree": (2 * up, 2 * up, up),
        "in_network": (2, 1, 0),
    }[algorithm]


def cost_case(algorithm: str, ranks: int, nbytes: int, gamma: float = 0.0) -> Case:
    """One call of all_reduce_time."""
    a, b, c = terms(algorithm, ranks) if ranks > 1 else (0, 0, 0)
    right = a * ALPHA + nbytes * (b * BETA + c * gamma)
    suspects: list[tuple[float, str]] = []
    if ranks > 1:
        suspects = [
            (right - a * ALPHA, "α is left out: every message has its latency"),
            (a * ALPHA, "the bytes cost nothing"),
            (a * ALPHA + nbytes * b * BETA, "γ is left out: adding takes time, too"),
            (a * ALPHA + nbytes * (b * BETA + b * gamma), "not every byte that travels is added"),
            (2 * right, "the whole counts twice"),
            (right / 2, "half of the algorithm is missing: reduce-scatter *and* all-gather"),
            (a * ALPHA + nbytes / ranks * (b * BETA + c * gamma),
             "`nbytes` is the whole vector, not a rank's share"),
        ]  # fmt: skip
        # Without bytes many algorithms cost the same: to name one would mislead.
        for other in ALGORITHMS if nbytes else ():
            a, b, c = terms(other, ranks)
            suspects.append(
                (a * ALPHA + nbytes * (b * BETA + c * gamma), f"that is what {other!r} takes")
            )
    shares = {
        "one rank": ranks == 1,
        _ODD.get(algorithm, "not a power of two"): bool(ranks & (ranks - 1)),
        "empty": nbytes == 0,
        "gamma": gamma > 0,
    }
    told: Suspects = [(value, why) for value, why in suspects if value != right]
    arguments: dict[str, Any] = {
        "algorithm": algorithm, "nbytes": nbytes, "ranks": ranks, "alpha": ALPHA, "beta": BETA,
    }  # fmt: skip
    if gamma:
        arguments["gamma"] = gamma

    def judge(returned: Any) -> None:
        expect_number(returned, right, "s", told, operations=64)

    return Case(
        f"{algorithm}, {ranks} ranks, {nbytes} bytes{', with γ' if gamma else ''}",
        arguments,
        judge,
        traits=frozenset(name for name, holds in shares.items() if holds),
    )


def clock_case(algorithm: str, ranks: int, nbytes: int) -> Case:
    """The same call, against what the simulated cluster's clock shows."""
    cluster = uniform(ranks, ALPHA, 1 / BETA, switch_adds=True)
    shown = replay(recorded(algorithm, ranks, nbytes), cluster).makespan

    def judge(returned: Any) -> None:
        number = isinstance(returned, (int, float)) and not isinstance(returned, bool)
        if not number or abs(returned - shown) > 0.01 * shown:
            raise CheckFailed(
                f"returned {returned!r} s, but the algorithm takes {shown:.9g} s on the simulated "
                f"cluster (1 % is allowed)"
            )

    arguments = {
        "algorithm": algorithm, "nbytes": nbytes, "ranks": ranks, "alpha": ALPHA, "beta": BETA,
    }  # fmt: skip
    return Case(f"{algorithm}, {ranks} ranks, {nbytes} bytes", arguments, judge)


def recorded(algorithm: str, ranks: int, nbytes: int) -> Record:
    """The algorithm's messages as a record that the clock can replay."""
    record = Record(ranks, events=[[] for _ in range(ranks)])
    record.groups[0] = tuple(range(ranks))
    if algorithm == "in_network":
        for rank in range(ranks):
            _post(record, rank, "all_reduce", -1, nbytes, match=0)
            record.events[rank].append(Event("wait", rank))
        return record
    steps: dict[tuple[int, int], list[int]] = defaultdict(list)
    for match, (step, src, dst, share) in enumerate(messages(algorithm, ranks)):
        size = round(nbytes * share)
        steps[src, step].append(_post(record, src, "send", dst, size, match, log=False))
        steps[dst, step].append(_post(record, dst, "recv", src, size, match, log=False))
    for (rank, _), operations in sorted(steps.items()):
        record.events[rank] += [Event("post", operation) for operation in operations]
        record.events[rank] += [Event("wait", operation) for operation in operations]
    return record


def _post(
    record: Record, rank: int, kind: str, peer: int, nbytes: int, match: int, log: bool = True
) -> int:
    number = len(record.operations)
    record.operations.append(
        Operation(number, rank, kind, 0, peer, nbytes, (nbytes,), "uint8", "meta", match=match)
    )
    if log:
        record.events[rank].append(Event("post", number))
    return number


def messages(algorithm: str, p: int) -> Iterable[Message]:
    """Who sends which share of the vector to whom, in which step."""
    ranks = range(p)
    if algorithm == "pairwise":
        return [(k, r, (r + k) % p, 1.0) for k in range(1, p) for r in ranks]
    if algorithm == "parameter_server":
        return [(s, *((r, 0) if s == 0 else (0, r)), 1.0) for s in (0, 1) for r in ranks if r]
    if algorithm == "ring":
        return [(k, r, (r + 1) % p, 1 / p) for k in range(2 * (p - 1)) for r in ranks]
    if algorithm == "binomial_tree":
        up = [(j, r, r - (1 << j), 1.0) for j in range((p - 1).bit_length()) for r in ranks
              if r % (2 << j) == 1 << j]  # fmt: skip
        last = 2 * (p - 1).bit_length() - 1
        return up + [(last - j, b, a, share) for j, a, b, share in up]
    lg = p.bit_length() - 1
    q = 1 << lg
    inner = [(j, 1.0) for j in range(lg)]
    if algorithm == "halving_doubling":
        inner = [(j, 2.0 ** -(j + 1)) for j in (*range(lg), *reversed(range(lg)))]
    found = [(-1, r, r - q, 1.0) for r in range(q, p)]
    for step, (j, share) in enumerate(inner):
        found += [(step, r, r ^ (1 << j), share) for r in range(q)]
    return found + [(len(inner), r - q, r, 1.0) for r in range(q, p)]
