"""The cases of `rendezvous` and their judges."""

from __future__ import annotations

import re
from typing import Any

from grader.checks.framework import CheckFailed
from grader.checks.world import SimulatedCluster

WORLD_WITH_GAPS = 9
MISSING = (3, 8)


def meet(cluster: SimulatedCluster, cases: list[list[dict[str, Any]]], **options: Any) -> Any:
    """Run `rendezvous` cases (each a list by rank of the cluster); answers by case, then rank."""
    inputs = [{"cases": list(of_rank)} for of_rank in zip(*cases, strict=True)]
    outcome = cluster.run(
        "a1:rendezvous", inputs, task="a1.rendezvous", allow=("p2p", "store"), **options
    )
    return [[answers[number] for answers in outcome.outputs] for number in range(len(cases))]


def comer(
    rank: int, world: int, address: str, timeout: float = 2.0, absent: bool = False
) -> dict[str, Any]:
    """One rank's part of a case."""
    arguments = {"rank": rank, "world_size": world, "address": address, "timeout": timeout}
    return {"arguments": arguments, "absent": absent, "refused": True}


def judge_addresses(answer: dict[str, Any], addresses: list[str], where: str) -> None:
    """A rank got all addresses, in order of rank."""
    got, error = answer["returned"], answer["error"]
    if error is not None:
        cause = None
        if answer["in_vain"] and not answer["written_before_first_failure"]:
            cause = "a rank waits for the others before it writes its own address: so do all"
        raise CheckFailed(
            f"{where}: expected addresses, got {error['type']}: {error['message']}", cause=cause
        )
    if got != addresses:
        cause = None
        if not isinstance(got, list):
            cause = f"the function returns {type(got).__name__}, not a list"
        elif all(isinstance(each, bytes) for each in got):
            cause = "a store returns bytes: decode them"
        elif sorted(map(str, got)) == sorted(addresses):
            cause = "the list is in order of arrival, not of rank"
        raise CheckFailed(f"{where}: expected {addresses}, got {got}", cause=cause)


def with_gaps(timeout: float) -> list[dict[str, Any]]:
    """Nine ranks are expected, of which two never come."""
    return [
        comer(rank, WORLD_WITH_GAPS, f"host{rank}", timeout, absent=rank in MISSING)
        for rank in range(WORLD_WITH_GAPS)
    ]


def judge_missing(rank: int, answer: dict[str, Any]) -> None:
    """A rank that came was told who did not, of `MISSING`."""
    where, error = f"ranks {MISSING} missing, rank {rank}", answer["error"]
    if error is None:
        raise CheckFailed(
            f"{where}: expected TimeoutError, got {answer['returned']}",
            cause="the addresses that never came are made up, or left out",
        )
    if error["type"] != "TimeoutError":
        raise CheckFailed(
            f"{where}: expected TimeoutError, got {error['type']}: {error['message']}",
            cause="the store's own error is handed on as it is"
            if error["type"].startswith("Dist")
            else None,
        )
    named = {int(digits) for digits in re.findall(r"\d+", error["message"])}
    forgotten = sorted(set(MISSING) - named)
    if forgotten:
        raise CheckFailed(
            f"{where}: the message does not name {forgotten}: {error['message']!r}",
            cause="it stopped at the first missing rank: find out about all of them",
        )
    # 0, 1, 2 and 7 may count something: seconds, or ranks.
    blamed = sorted(named & ({4, 5, 6} - {rank}))
    if blamed:
        raise CheckFailed(
            f"{where}: the message names ranks that are there, {blamed}: {error['message']!r}",
            cause="all ranks are blamed, or all after the first that is missing",
        )
