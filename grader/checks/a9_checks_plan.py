"""The checks of assignment 9 about `plan`: what it ranks, what it refuses, what it finds."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from grader.checks import a9_memory as memory
from grader.checks import causes_a9 as causes
from grader.checks.a9_memory import model, plan
from grader.checks.a9_rankings import (
    GB,
    GPT3,
    GROUPED,
    SEVEN_B,
    SPARSE,
    Fields,
    a100,
    brute_force,
    devices_of,
    each_once,
    in_words,
    kind_of,
    layouts,
    needs,
    own_total,
    rank,
    total,
    undivided,
    usable,
)
from grader.checks.a9_steps import FREE, case, seconds
from grader.checks.framework import CheckFailed, SolutionError, check
from grader.checks.world import SimulatedCluster as Cluster

# Ranking ------------------------------------------------------------------------------------------


def spread(m: Fields, cluster: Fields, batch: int, most: int) -> list[Fields]:
    """Some of the plans that fit, from all over the list, in an order that tells nothing."""
    plans = brute_force(m, cluster, batch)
    step = max(1, len(plans) // most)
    chosen = plans[::step]
    return chosen[1::2] + chosen[::2]


@check("a9.plan", 4, "ranks the plans that fit by its own step_time, best first")
def test_plan_ranks(cluster: Cluster) -> None:
    trials = [(SEVEN_B, a100(16), 64), (SPARSE, a100(8), 16)]
    cases, lists = [], []
    for m, machine, batch in trials:
        candidates = spread(m, machine, batch, 60)
        lists.append(candidates)
        cases.append({"model": m, "cluster": machine, "batch_tokens": batch * m["sequence"],
                      "candidates": candidates, "own": True})  # fmt: skip
    for (m, machine, _), candidates, answer in zip(
        trials, lists, rank(cluster, cases), strict=True
    ):
        each_once(candidates, answer)
        if answer["refused"]:
            entry = answer["refused"][0]
            raise CheckFailed(
                f"{in_words(entry['plan'])} is refused ({entry['kind']}: {entry['reason']}), but "
                f"it fits: {needs(m, entry['plan'], machine)}",
                cause=causes.made_up(own_total(cluster, m, entry["plan"]), usable(machine))
                if entry["kind"] == "memory"
                else None,
            )
        for entry in answer["best"]:
            judge_entry(entry)
        for one, other in pairwise(answer["best"]):
            if other["own_seconds"] < one["own_seconds"]:
                raise CheckFailed(
                    f"{in_words(one['plan'])} with {one['own_seconds']:.4f} s stands before "
                    f"{in_words(other['plan'])} with {other['own_seconds']:.4f} s; expected the "
                    f"faster one first",
                    cause=_why_unsorted(answer["best"], candidates),
                )


def _why_unsorted(best: Sequence[dict[str, Any]], candidates: Sequence[Fields]) -> str:
    """What else the plans are sorted by."""
    slowness = [entry["own_seconds"] for entry in best]
    if slowness == sorted(slowness, reverse=True):
        return "slowest first: best must begin with the fastest plan"
    if [entry["plan"] for entry in best] == list(candidates):
        return "the plans are left in the order of the candidates: they must be sorted by step_time"
    memories = [entry["own_memory"]["total"] or 0.0 for entry in best]
    if memories == sorted(memories):
        return "the plans are sorted by their memory: they must be sorted by step_time"
    return "the plans are not sorted by step_time"


def judge_entry(entry: dict[str, Any]) -> None:
    """Its numbers are those of the student's own functions."""
    told, own = entry["seconds"], entry["own_seconds"]
    if told is None or not math.isclose(told, own, rel_tol=1e-9):
        raise CheckFailed(
            f"{in_words(entry['plan'])}: seconds={told}, but step_time of this plan is {own:.6g}",
            cause="the seconds are not those of the whole step"
            if told is not None and told < own
            else None,
        )
    for part in (*memory.STATES, "activations"):
        told, own = entry["memory"][part], entry["own_memory"][part]
        if told is None or own is None or not math.isclose(told, own, rel_tol=1e-9, abs_tol=1.0):
            raise CheckFailed(
                f"{in_words(entry['plan'])}: memory tells {part}={told}, memory_per_device says "
                f"{own}"
            )


# Refusing -----------------------------------------------------------------------------------------

#: (model, cluster, sequences of a step, plan, kind, numbers that the reason must hold)
REFUSALS: list[tuple[Fields, Fields, int, Fields, str, list[str]]] = [
    (GPT3, a100(64), 64, plan(dp=2, pp=8, tp=8, micro_batches=32), "product", ["128", "64"]),
    (GPT3, a100(64), 64, plan(pp=4, tp=8, micro_batches=64), "product", ["32", "64"]),
    (GPT3, a100(64), 64, plan(pp=4, tp=8, cp=4, micro_batches=64), "product", ["128", "64"]),
    (GPT3, a100(64), 64, plan(tp=64, micro_batches=64), "division", ["96", "64"]),
    (GROUPED, a100(8), 8, plan(tp=8, micro_batches=8), "division", ["4", "8"]),
    (GROUPED, a100(24), 24, plan(dp=8, cp=3, micro_batches=3), "division", ["1024", "3"]),
    (
        model(layers=4, hidden=256, heads=8, vocab=1000, sequence=100),
        a100(8), 8, plan(tp=8, sequence_parallel=True, micro_batches=8), "division", ["100", "8"],
    ),
    (
        model(layers=4, hidden=256, heads=8, vocab=1000, sequence=100, ffn_hidden=500),
        a100(8), 8, plan(tp=8, micro_batches=8), "division", ["500", "8"],
    ),
    (SPARSE, a100(16), 32, plan(dp=16, ep=16, micro_batches=2), "division", ["8", "16"]),
    (SPARSE, a100(8), 8, plan(dp=2, pp=4, ep=4, micro_batches=4), "division", ["2", "4"]),
    (GROUPED, a100(8), 8, plan(dp=8, ep=2), "division", ["2"]),
    (GROUPED, a100(16), 16, plan(pp=16, micro_batches=16), "division", ["12", "16"]),
    (GROUPED, a100(4), 8, plan(pp=4, chunks=4, micro_batches=8), "division", ["12", "4"]),
    (GROUPED, a100(4), 6, plan(pp=4, chunks=3, micro_batches=6), "division", ["6", "4"]),
    (GROUPED, a100(4), 8, plan(dp=4, chunks=2, micro_batches=2), "division", ["2"]),
    (GROUPED, a100(8), 64, plan(dp=8, micro_batch=2, micro_batches=2), "batch", ["32", "64"]),
    (GROUPED, a100(8), 64, plan(dp=2, tp=4, micro_batches=64), "batch", ["128", "64"]),
    (GPT3, a100(64), 64, plan(dp=64), "memory", []),
    (GPT3, a100(64), 64, plan(pp=8, tp=8, micro_batches=64), "memory", []),
    (GPT3, a100(64), 64, plan(dp=8, tp=8, zero=1, micro_batches=8), "memory", []),
]  # fmt: skip

FITS = [
    (GPT3, a100(64), 64, plan(pp=8, tp=8, micro_batches=64, recomputation="full")),
    (GROUPED, a100(8), 64, plan(dp=8, micro_batches=8, zero=1, recomputation="selective")),
    (GROUPED, a100(4), 8, plan(pp=4, chunks=3, micro_batches=8)),
    (SPARSE, a100(8), 8, plan(dp=8, ep=8)),
    (SPARSE, a100(8), 8, plan(dp=2, cp=4, ep=8, micro_batches=4)),
    (model(layers=5, hidden=256, heads=8, vocab=1000, sequence=100), a100(4), 8,
     plan(pp=2, tp=2, micro_batches=8)),
]  # fmt: skip


def one(trial: Sequence[Any]) -> Fields:
    """The call with this plan as its only candidate."""
    m, machine, batch, candidate = trial[:4]
    return {"model": m, "cluster": machine, "batch_tokens": batch * m["sequence"],
            "candidates": [candidate], "most": 5}  # fmt: skip


@check("a9.plan", 4, "refuses what does not fit, and what fits it does not")
def test_plan_refuses(cluster: Cluster) -> None:
    trials: list[Any] = [*REFUSALS, *FITS]
    for trial, answer in zip(trials, rank(cluster, [one(each) for each in trials]), strict=True):
        m, machine, batch, candidate = trial[:4]
        each_once([candidate], answer)
        expected = trial[4] if len(trial) > 4 else None
        got = answer["refused"][0]["kind"] if answer["refused"] else None
        if got != expected:
            asked = f"{in_words(candidate)} for {batch} sequences on {devices_of(machine)} devices"
            reason = f" ({answer['refused'][0]['reason']})" if got else ""
            wanted = f"a refusal as {expected!r}" if expected else "that it is ranked: it fits"
            cause = causes.wrong_refusal(
                candidate, m["layers"], got, expected, undivided(m, candidate)
            )
            if "memory" in (got, expected):
                wanted += f" ({needs(m, candidate, machine)})"
            if got is None and expected == "memory":
                own = own_total(cluster, m, candidate)
                cause = causes.own_memory(own, usable(machine), machine["memory"])
            elif expected is None and got == "memory":
                cause = causes.made_up(own_total(cluster, m, candidate), usable(machine))
            raise CheckFailed(
                f"{asked} {f'is refused as {got!r}{reason}' if got else 'is ranked'}, expected "
                f"{wanted}",
                cause=cause,
            )


@check("a9.plan", 2, "says why, with the numbers that do not fit")
def test_plan_reasons(cluster: Cluster) -> None:
    answers = rank(cluster, [one(each) for each in REFUSALS])
    for (m, machine, _, candidate, _, numbers), answer in zip(REFUSALS, answers, strict=True):
        if not answer["refused"]:
            raise CheckFailed(f"{in_words(candidate)} is not refused", cause=causes.UNREFUSED)
        reason = re.sub(r"(?<=\d),(?=\d{3})", "", answer["refused"][0]["reason"])
        if answer["refused"][0]["kind"] == "memory":
            numbers = [f"{total(m, candidate) / GB:.1f}", f"{usable(machine) / GB:.1f}"]
        for number in numbers:
            if not re.search(rf"(?<![\d.]){re.escape(number)}(?![\d])", reason):
                raise CheckFailed(
                    f"{in_words(candidate)} is refused because {reason!r}; expected the reason to "
                    f"hold {' and '.join(numbers)}",
                    cause=causes.NO_NUMBERS,
                )


# Finding ------------------------------------------------------------------------------------------

ALLOWED = 1.02  # of the best of the brute-force list: what the student's own list may lose


@check("a9.plan", 4, "finds plans as good as any that trying all would find")
def test_plan_finds(cluster: Cluster, metrics: dict[str, Any]) -> None:
    trials = [(SEVEN_B, a100(16), 64), (GROUPED, a100(8), 32), (SPARSE, a100(8), 32)]
    cases = []
    for m, machine, batch in trials:
        common = {"model": m, "cluster": machine, "batch_tokens": batch * m["sequence"]}
        common |= {"own": True, "most": 1}
        cases += [common | {"sample": 500}, common | {"candidates": brute_force(m, machine, batch)}]
    answers = rank(cluster, cases)
    for number, (m, machine, batch) in enumerate(trials):
        alone, tried = answers[2 * number : 2 * number + 2]
        what = f"{m['layers']} layers of {m['hidden']} on {devices_of(machine)} devices"
        if not alone["best"] or not tried["best"]:
            raise CheckFailed(f"{what}: no plan is ranked, expected many")
        first, best = alone["best"][0], tried["best"][0]
        refused = kind_of(m, first["plan"], machine, batch)
        if refused:
            raise CheckFailed(
                f"{what}: the best plan is {in_words(first['plan'])}, which does not fit "
                f"({refused})"
            )
        lost = first["own_seconds"] / best["own_seconds"]
        metrics["lost"] = round(max(lost, metrics.get("lost", 0.0)), 4)
        if lost > ALLOWED:
            raise CheckFailed(
                f"{what}: the best plan is {in_words(first['plan'])} with "
                f"{first['own_seconds']:.4f} s; {in_words(best['plan'])} takes "
                f"{best['own_seconds']:.4f} s by the same step_time",
                cause=causes.not_tried(best["plan"], _all_tried(cluster, cases[2 * number])),
            )
        told = {tuple(layout) for layout in alone["layouts"]}
        missing = [each for each in layouts(m, devices_of(machine)) if each not in told]
        if missing:
            dp, pp, tp, cp, ep = missing[0]
            more = f"; {len(missing)} layouts are missing in all" if len(missing) > 1 else ""
            raise CheckFailed(
                f"{what}: plan() without candidates lists no plan with dp={dp}, pp={pp}, tp={tp}, "
                f"cp={cp}, ep={ep}, neither in best nor in refused{more}",
                cause="layouts are dropped without a reason, or not thought of",
            )
        for entry in alone["sampled"]:
            judge_refusal(cluster, entry, kind_of(m, entry["plan"], machine, batch), m, machine)


def _all_tried(cluster: Cluster, case: Fields) -> list[Fields]:
    """The student's own list, ranked and refused."""
    answer = rank(cluster, [case | {"own": False, "sample": 0, "most": 20_000}])[0]
    return [entry["plan"] for name in ("best", "refused") for entry in answer[name]]


def judge_refusal(
    cluster: Cluster, entry: dict[str, Any], expected: str | None, m: Fields, machine: Fields
) -> None:
    """A plan that the student's own list has refused is one that cannot be, for that reason."""
    got, asked = entry["kind"], in_words(entry["plan"])
    if got == expected:
        return
    if expected is None:
        raise CheckFailed(
            f"plan() without candidates refuses {asked} as {got!r}, but it fits: "
            f"{needs(m, entry['plan'], machine)}",
            cause=causes.made_up(own_total(cluster, m, entry["plan"]), usable(machine))
            if got == "memory"
            else causes.wrong_refusal(entry["plan"], m["layers"], got, expected),
        )
    raise CheckFailed(
        f"plan() without candidates refuses {asked} as {got!r}, expected {expected!r}",
        cause=causes.wrong_refusal(entry["plan"], m["layers"], got, expected),
    )


@check("a9.plan", 2, "puts GPT-3 on tensor parallelism inside nodes, and a pipeline across them")
def test_plan_gpt3(cluster: Cluster) -> None:
    # Narayanan et al. 2021, figure 13: 64 GPUs, 32 sequences of one micro-batch each.
    splits = [(2, 32), (4, 16), (8, 8), (16, 4), (32, 2)]
    candidates = [plan(tp=tp, pp=pp, micro_batches=32, recomputation="full") for tp, pp in splits]
    common = {"model": GPT3, "cluster": a100(64), "batch_tokens": 32 * 2048, "most": 3}
    given, alone = rank(cluster, [common | {"candidates": candidates, "most": 5}, common])
    first = given["best"][0]["plan"] if given["best"] else None
    if first is None or (first["tp"], first["pp"]) != (8, 8):
        times = {entry["plan"]["tp"]: entry["seconds"] or math.nan for entry in given["best"]}
        shown = ", ".join(f"tp={tp}, pp={64 // tp} ({took:.2f} s)" for tp, took in times.items())
        raise CheckFailed(
            f"of tp·pp = 64 on eight nodes of eight, tp=8, pp=8 must be the best, as published; "
            f"the order is {shown or 'empty'}",
            cause=_why_other_split(cluster, first) if first else None,
        )
    best = alone["best"][0]["plan"] if alone["best"] else None
    # Whether a pipeline or ZeRO-3 is better across the nodes depends on how much traffic hides.
    if best is None or not 1 < best["tp"] <= 8:
        raise CheckFailed(
            f"GPT-3 175B on eight nodes: the best plan is {in_words(best) if best else 'none'}, "
            f"expected tensor parallelism, and only inside the nodes"
        )


def _why_other_split(cluster: Cluster, first: Fields) -> str:
    """Why another split of 64 devices into tp and pp than 8 × 8 may look best."""
    if first["tp"] > 8:
        return "step_time makes tensor parallelism across nodes too cheap"
    cuts = [first | {"micro_batches": count} for count in (32, 64)]
    few, many = seconds(cluster, [case(GPT3, cut, **FREE) for cut in cuts])
    # Without a bubble twice the micro-batches take twice the time.
    if many > 1.9 * few:
        return "step_time leaves the bubble out, which makes deep pipelines cheap"
    return (
        "step_time makes deep pipelines too cheap, or tensor parallelism inside a node too dear: "
        "look at the bubble and at the traffic of tp"
    )


@check("a9.plan", 2, "takes any candidates, and refuses tokens that are no whole sequences")
def test_plan_arguments(cluster: Cluster) -> None:
    common = {"model": GROUPED, "cluster": a100(8), "batch_tokens": 8 * 1024, "most": 50}
    some = [plan(dp=8, zero=zero, recomputation="full") for zero in (0, 1, 3)]
    wrong = [8 * 1024 + 1, 512, 0]
    cases = [
        common | {"candidates": some, "generator": True},
        common | {"candidates": []},
        *(common | {"batch_tokens": tokens} for tokens in wrong),
    ]
    inputs = {"cases": cases}
    outcome = cluster.run(
        "a9:rankings", [inputs], task="a9.plan", time_limit=60.0, wall_seconds=90.0
    )
    once, nothing, *refused = outcome.outputs[0]
    for answer in (once, nothing):
        if "error" in answer:
            raise SolutionError(f"{answer['error']['type']}: {answer['error']['message']}")
    each_once(some, once)
    if nothing["sizes"] != [0, 0]:
        raise CheckFailed(
            f"candidates=[]: {nothing['sizes'][0]} plans are ranked, {nothing['sizes'][1]} "
            f"refused; expected none",
            cause="an empty list is taken for None: then no plan is to be judged",
        )
    for tokens, answer in zip(wrong, refused, strict=True):
        error = answer.get("error")
        if error is None or error["type"] != "ValueError" or str(tokens) not in error["message"]:
            raised = f"{error['type']}: {error['message']}" if error else "nothing"
            raise CheckFailed(
                f"batch_tokens={tokens} with sequences of 1024 raised {raised}, expected a "
                f"ValueError that holds {tokens}",
                cause=causes.BATCH_TOKENS if error is None else causes.NO_NUMBERS,
            )
