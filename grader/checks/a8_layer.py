"""Whether `ExpertParallelMoE` computes what one device computes, and what it sends and holds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from grader.checks import a4_volume as volume
from grader.checks import causes_a8_layer as causes
from grader.checks.a4_cases import GROUP, GROUP_WORLD, PAIR
from grader.checks.a4_judges import expect, judge_refusal
from grader.checks.a8_cases import Exchange
from grader.checks.a8_moe import MoeCase, Part, moe, steps_of, total
from grader.checks.a8_sent import metadata, pairs_in, pairs_out, sent
from grader.checks.framework import CheckFailed
from grader.checks.world import Outcome, SimulatedCluster

MOE = "a8.ExpertParallelMoE"

# Judging ------------------------------------------------------------------------------------------


def run(cluster: SimulatedCluster, cases: Sequence[MoeCase]) -> Outcome:
    """Run cases of one world size in one world."""
    inputs = [{"cases": [case.of_rank(rank) for case in cases]} for rank in range(cases[0].world)]
    return cluster.run("a8:layers", inputs, task=MOE, allow=None)


def run_judged(
    cluster: SimulatedCluster, worlds: Sequence[Sequence[MoeCase]], *what: str
) -> Outcome:
    """Run the cases of every world; judge "output", "experts", "router", "x" (default: all)."""
    for cases in worlds:
        outcome = run(cluster, cases)
        for number, case in enumerate(cases):
            answers = [outcome.outputs[rank][number] for rank in case.members]
            judge(case, answers, what or ("output", "experts", "router", "x"))
    return outcome


def judge(case: MoeCase, answers: Sequence[Any], what: Sequence[str]) -> None:
    """Outputs and gradients of every step and place."""
    given = 3 * case.per_rank + 1
    own = all(answer["known"] == given for answer in answers)
    for step, parts in enumerate(steps_of(case)):
        where = f"{case.label}: " + (f"step {step + 1}, " if len(case.xs) > 1 else "")
        got = [answer["steps"][step] for answer in answers]
        whole = all("input_gradient" in each for each in got)
        for place, each in enumerate(got):
            some = what if whole else ("output",)
            _judge_step(case, each, parts, step, place, some, where, own)
    for rank, answer in zip(case.members, answers, strict=True):
        where = f"{case.label}: rank {rank}"
        if not answer["kept"]:
            raise CheckFailed(f"{where}: the input was changed", cause="done in place")
        if answer["known"] != given:
            raise CheckFailed(
                f"{where}: parameters() names {answer['known']} of the {given} parameters of "
                f"router and experts",
                cause="modules in a plain list, or copies: an optimizer would not find them",
            )


def _judge_step(
    case: MoeCase,
    got: dict[str, Any],
    parts: Sequence[Part],
    step: int,
    place: int,
    what: Sequence[str],
    where: str,
    own: bool,
) -> None:
    rank, part = case.members[place], parts[place]
    where = f"{where}rank {rank}"
    if "output" in what:
        expect(
            got["output"],
            part.output,
            f"{where}, output",
            partial(causes.of_output, case, parts, step, place),
        )
    if "experts" in what:
        _expect_experts_gradients(case, got["experts"], parts, place, where, own)
        for local, gradients in enumerate(got["experts"]):
            number = place * case.per_rank + local
            for name, found in gradients.items():
                _judge_expert(found, case, parts, number, name, place, where)
    if "router" in what:
        if got["router"] is None:
            raise CheckFailed(f"{where}: the router got no gradient", cause=causes.NO_ROUTER)
        expect(
            got["router"],
            without_noise(part.router),
            f"{where}, gradient of the router",
            partial(causes.of_router, parts, place),
        )
    if "x" in what:
        if got["input_gradient"] is None:
            raise CheckFailed(f"{where}: the input got no gradient", cause=causes.CUT_OFF)
        expect(
            got["input_gradient"],
            part.x,
            f"{where}, gradient of the input",
            partial(causes.of_input, case, parts, step, place),
        )


def _expect_experts_gradients(
    case: MoeCase,
    experts: Sequence[dict[str, Any]],
    parts: Sequence[Part],
    place: int,
    where: str,
    own: bool,
) -> None:
    """No expert's gradient is None. Told of first: experts that got tokens.

    own: whether the layer names the parameters that it was given.
    """
    lacking = []
    for local, gradients in enumerate(experts):
        number = place * case.per_rank + local
        tokens = sum(int((part.indices == number).any(1).sum()) for part in parts)
        lacking += [(tokens, number, name) for name, each in gradients.items() if each is None]
    if not lacking:
        return
    tokens, number, name = max(lacking, key=lambda each: each[0] > 0)
    what = f"{where}, gradient of expert {number}'s {name}"
    if tokens:
        raise CheckFailed(
            f"{what} is None, but the expert got tokens: {tokens} chose it",
            cause=causes.DETACHED if own else causes.COPIED,
        )
    raise CheckFailed(
        f"{what} is None, expected zeros: no token chose this expert", cause=causes.IDLE
    )


def without_noise(gradient: torch.Tensor) -> torch.Tensor:
    """With zeros where there is nothing but what rounding has left."""
    least = 1e-14 * gradient.abs().max() if gradient.numel() else 0.0
    return gradient.where(gradient.abs() > least, 0.0)


def _judge_expert(
    found: Any,
    case: MoeCase,
    parts: Sequence[Part],
    number: int,
    name: str,
    place: int,
    where: str,
) -> None:
    expect(
        found,
        total(parts, number, name),
        f"{where}, gradient of expert {number}'s {name}",
        partial(causes.of_expert, case, parts, number, name, place),
    )


# Checks -------------------------------------------------------------------------------------------


def sizes(rng: torch.Generator) -> list[list[MoeCase]]:
    """EP sizes 1, 2, 4 with 8 experts, 3 with 6; also k of 1 and 3."""
    return [
        [moe(rng, 1, experts=8)],
        [moe(rng, 2, experts=8), moe(rng, 2, experts=2, k=1)],
        [moe(rng, 3, experts=6), moe(rng, 3, experts=3, k=3)],
        [moe(rng, 4, experts=8), moe(rng, 4, experts=4, k=1)],
    ]


def odd(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    """Ranks without tokens, experts without, dropped choices, more dimensions."""
    cases = [
        moe(rng, 3, experts=6, counts=(0, 5, 2), label="a rank without tokens"),
        moe(rng, 3, experts=3, counts=(0, 0, 1), k=1, label="one token in all"),
        moe(rng, 3, experts=6, k=1, favourite=4, label="one expert gets all tokens"),
        moe(rng, 3, experts=6, drops=True, label="some choices dropped (-1)"),
        moe(rng, 3, experts=6, lead=(2,), label="(2, tokens, hidden)"),
    ]
    run_judged(cluster, [cases])


def groups(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    """Sub-groups whose group ranks are not global ranks."""
    cases = [moe(rng, GROUP_WORLD, ranks, experts=6) for ranks in (GROUP, PAIR)]
    causes.by_group(lambda some: run_judged(cluster, [some]), cases)


def training(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    """Three steps of SGD, the router's gradient summed outside."""
    run_judged(cluster, [[moe(rng, 2, experts=4, steps=3)]])


def bytes_sent(cluster: SimulatedCluster, rng: torch.Generator, metrics: dict[str, Any]) -> None:
    """Each token once to a rank and one row back, forward and backward; no parameters."""
    for ranks in (None, GROUP):
        size = 4 if ranks is None else 3
        case = moe(rng, 4, ranks, experts=3 * size, k=4, hidden=512, counts=[5, 4, 6, 3][:size])
        outcome = run(cluster, [case])
        answers = [outcome.outputs[rank][0] for rank in case.members]
        judge(case, answers, ("output",))
        parts = steps_of(case)[0]
        routes = Exchange(
            case.label, 4, ranks, 3 * size, case.xs[0], [part.indices for part in parts]
        )
        for place, rank in enumerate(case.members):
            forward, backward = volume.phases(
                outcome.trace, rank, answers[place]["steps"][0]["marks"]
            )
            rows = pairs_out(routes, place) + pairs_in(routes, place)
            least = rows * 512 * 8
            allowed = least + 2 * metadata(routes, place)
            for name, operations in (("forward", forward), ("backward", backward)):
                nbytes = sent(operations, size, place)
                metrics[f"{name}_bytes"] = nbytes
                if not least <= nbytes <= allowed:
                    raise CheckFailed(
                        f"{case.label}: rank {rank}, {name}: {volume.words(operations)}, that is "
                        f"{nbytes} bytes sent to other ranks; expected {rows} rows of 4096 bytes "
                        f"(each token once to every other rank that has one of its experts, and "
                        f"one row back), and at most {allowed - least} bytes beside them",
                        cause=causes.of_volume(
                            case, routes, operations, place, nbytes / 4096, rows
                        ),
                    )


def shards(cluster: SimulatedCluster, rng: torch.Generator, metrics: dict[str, Any]) -> None:
    """The layer holds this rank's experts and the router, and nothing more."""
    case = moe(rng, 4, experts=8)
    outcome = run(cluster, [case])
    own = case.per_rank * sum(value.numel() for value in case.experts[0].values())
    expected = own + case.router.numel()
    for rank in case.members:
        elements = outcome.outputs[rank][0]["elements"]
        metrics["parameters"] = elements
        if elements != expected:
            raise CheckFailed(
                f"{case.label}: rank {rank} holds {elements} parameters, expected {expected}: "
                f"its {case.per_rank} experts and the router",
                cause="experts of other ranks are held, too: nothing is spread"
                if elements > expected
                else "modules in a plain list, or copies: an optimizer would not find them",
            )


def refuses(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    """No experts; a router that knows more experts than there are."""
    none = moe(rng, 2, experts=2, label="no experts")
    many = moe(rng, 2, experts=4, k=4, label="a router of 6 experts")
    many.router = torch.randn(6, 4, generator=rng, dtype=torch.float64)
    many.k = 6
    for case in (none, many):
        case.refused = True
        inputs = [{"cases": [case.of_rank(rank)]} for rank in range(2)]
        if case is none:
            for given in inputs:
                given["cases"][0]["experts"] = []
        outcome = cluster.run("a8:layers", inputs, task=MOE, allow=None)
        words: tuple[object, ...] = ("experts", 0) if case is none else (5, 4)
        for rank in range(2):
            error = outcome.outputs[rank][0].get("error")
            judge_refusal(error, words, f"{case.label}: rank {rank}")
