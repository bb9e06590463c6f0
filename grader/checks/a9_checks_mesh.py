"""The checks of assignment 9 about the mesh, and about clipping over it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import product
from typing import Any

import torch

from grader.checks import causes_a9 as causes
from grader.checks.a4_volume import sent, words
from grader.checks.a9_clips import Clip, judge_clip, run_clips
from grader.checks.framework import CheckFailed, SolutionError, check
from grader.checks.world import SimulatedCluster as Cluster

Metrics = dict[str, Any]
DIMENSIONS = ("pp", "dp", "cp", "tp")

# build_mesh -------------------------------------------------------------------------------------


def sizes(tp: int = 1, cp: int = 1, pp: int = 1, dp: int = 1, ep: int = 1) -> dict[str, int]:
    """Arguments of a mesh whose product is right."""
    found = {"tp": tp, "cp": cp, "pp": pp, "dp": dp, "ep": ep}
    return {"world_size": tp * cp * pp * dp} | found


def built(
    cluster: Cluster, cases: Sequence[dict[str, int]], groups: Sequence[str]
) -> list[tuple[dict[str, int], list[dict[str, Any]]]]:
    """What every rank answered to each case: (arguments, answers by rank)."""
    found = []
    for world in sorted({case["world_size"] for case in cases}):
        together = [case for case in cases if case["world_size"] == world]
        inputs = [{"cases": together, "groups": list(groups)}] * world
        outcome = cluster.run("a9:meshes", inputs, task="a9.build_mesh", allow=None)
        for number, case in enumerate(together):
            found.append((case, [answers[number] for answers in outcome.outputs]))
    return found


def label(case: dict[str, Any]) -> str:
    """The call in words."""
    return f"build_mesh({', '.join(f'{name}={value}' for name, value in case.items())})"


def members(case: dict[str, int], name: str, rank: int) -> list[int]:
    """The ranks of a rank's group, in order."""
    pp, dp, cp, tp = (case[each] for each in DIMENSIONS)
    grid = torch.arange(pp * dp * cp * tp).reshape(pp, dp, cp, tp)
    p, d, c, t = (int(place) for place in (grid == rank).nonzero()[0])
    replicas = grid[p, :, :, t].flatten()
    place, ep = d * cp + c, case["ep"]
    begin = place // ep * ep
    found = {
        "pp": grid[:, d, c, t],
        "dp": grid[p, :, c, t],
        "cp": grid[p, d, :, t],
        "tp": grid[p, d, c, :],
        "dp_cp": replicas,
        "ep": replicas[begin : begin + ep],
        "edp": replicas[place % ep :: ep],
    }[name]
    return [int(each) for each in found]


def judge_groups(
    case: dict[str, int], answers: Sequence[dict[str, Any]], names: Sequence[str]
) -> None:
    """Every rank's groups, by name."""
    for rank, answer in enumerate(answers):
        if "error" in answer:
            error = answer["error"]
            raise SolutionError(
                f"{label(case)}: rank {rank}: {error['type']}: {error['message']} (at "
                f"{error['where']})"
            )
        if answer["names"] is None:
            raise CheckFailed(
                f"{label(case)}: rank {rank}: {answer['type']} returned, expected a DeviceMesh "
                f"with names of its dimensions"
            )
    for name, (rank, answer) in product(names, enumerate(answers)):
        group = answer["groups"][name]
        if "error" in group:
            raise CheckFailed(
                f"{label(case)}: rank {rank}: get_group({name!r}) raised {group['error']}",
                cause=causes.missing_group(name),
            )
        expected = members(case, name, rank)
        if group["ranks"] != expected:
            raise CheckFailed(
                f"{label(case)}: rank {rank}: the group {name!r} is {group['ranks']}, expected "
                f"{expected}",
                cause=causes.wrong_group(
                    case, name, group["ranks"], expected, _order(case, answers, names)
                ),
            )


def _order(
    case: dict[str, int], answers: Sequence[dict[str, Any]], names: Sequence[str]
) -> tuple[str, ...] | None:
    """The order of the dimensions that gives all groups, if all were asked for."""
    if not set(names) >= set(DIMENSIONS):
        return None
    return causes.order_of(case, [answer["groups"] for answer in answers])


MESHES = [
    sizes(),
    sizes(tp=2, pp=2),
    sizes(tp=2, dp=2, pp=2),
    sizes(tp=2, cp=2, dp=3),
    sizes(tp=3, cp=2, pp=2),
    sizes(tp=2, cp=2, dp=2, pp=2),
    sizes(cp=2, dp=2, pp=3),
    sizes(dp=5),
]


@check("a9.build_mesh", 4, "numbers ranks by tp, cp, dp, pp, from the inside out")
def test_mesh_order(cluster: Cluster) -> None:
    names = DIMENSIONS[::-1]
    for case, answers in built(cluster, MESHES, names):
        judge_groups(case, answers, names)


@check("a9.build_mesh", 2, "is a mesh of four named dimensions, also of size 1")
def test_mesh_form(cluster: Cluster) -> None:
    for case, answers in built(cluster, MESHES, ()):
        shape = [case[name] for name in DIMENSIONS]
        ranks = torch.arange(case["world_size"]).reshape(shape).tolist()
        for rank, answer in enumerate(answers):
            if "error" in answer:
                error = answer["error"]
                raise SolutionError(f"{label(case)}: {error['type']}: {error['message']}")
            if answer["names"] != list(DIMENSIONS):
                raise CheckFailed(
                    f"{label(case)}: the dimensions are {answer['names'] or answer['type']}, "
                    f"expected {list(DIMENSIONS)}, outermost first",
                    cause=causes.wrong_names(answer["names"]),
                )
            if answer["mesh"] != ranks:
                raise CheckFailed(
                    f"{label(case)}: rank {rank}: the mesh holds {answer['mesh']}, expected {ranks}"
                )


EXPERT_MESHES = [
    sizes(dp=4, ep=2),
    sizes(cp=2, dp=2, ep=4),
    sizes(tp=2, cp=2, dp=2, ep=2),
    sizes(cp=2, dp=3, ep=3),
    sizes(tp=2, cp=2, dp=2, pp=2, ep=4),
    sizes(dp=3, tp=2, ep=1),
]


@check("a9.build_mesh", 3, "shares experts among neighbours of dp × cp")
def test_mesh_experts(cluster: Cluster) -> None:
    names = ("dp_cp", "ep", "edp")
    for case, answers in built(cluster, EXPERT_MESHES, names):
        judge_groups(case, answers, names)


#: Arguments, what the error must hold, and what is wrong with them.
WRONG = [
    ({"world_size": 4, "tp": 2}, ["2", "4"], causes.PRODUCT),
    ({"world_size": 4, "tp": 2, "dp": 4}, ["8", "4"], causes.PRODUCT),
    ({"world_size": 4, "tp": 3, "pp": 2}, ["6", "4"], causes.PRODUCT),
    ({"world_size": 4, "dp": 4, "ep": 3}, ["3", "4"], causes.EXPERT_GROUPS),
    ({"world_size": 4, "dp": 2, "tp": 2, "ep": 4}, ["4", "2"], causes.EXPERT_GROUPS),
    ({"world_size": 4, "dp": 4, "tp": 0}, ["tp", "0"], causes.SIZES),
    ({"world_size": 4, "dp": -4, "tp": -1}, ["-"], causes.SIZES),
    ({"world_size": 2, "dp": 2}, ["2", "4"], causes.WORLD),
]


@check("a9.build_mesh", 3, "refuses sizes that do not fit, with the numbers")
def test_mesh_refusals(cluster: Cluster) -> None:
    inputs = [{"cases": [case for case, _, _ in WRONG], "groups": []}] * 4
    outcome = cluster.run("a9:meshes", inputs, task="a9.build_mesh", allow=None)
    for rank, answers in enumerate(outcome.outputs):
        for (case, holds, why), answer in zip(WRONG, answers, strict=True):
            refused(f"{label(case)} on 4 ranks: rank {rank}", answer, holds, why)


def refused(where: str, answer: dict[str, Any], holds: Sequence[str], why: str) -> None:
    """It raised ValueError, and the message holds all of these numbers or words.

    why: what is not checked when it raises nothing.
    """
    error = answer.get("error")
    if error is None:
        names = " and ".join({"-": "the negative one"}.get(each, each) for each in holds)
        raise CheckFailed(
            f"{where} raised nothing, expected a ValueError that names {names}", cause=why
        )
    if error["type"] != "ValueError":
        raise CheckFailed(
            f"{where} raised {error['type']}: {error['message'][:200]} (at {error['where']}), "
            f"expected a ValueError",
            cause=causes.STUMBLED,
        )
    for word in holds:
        if not re.search(rf"(?<!\d){re.escape(word)}(?!\d)" if word[-1].isdigit() else word,
                         error["message"]):  # fmt: skip
            raise CheckFailed(
                f"{where}: the ValueError says {error['message'][:200]!r}, expected it to hold "
                f"{word}",
                cause=causes.NO_NUMBERS,
            )


# clip_grad_norm ---------------------------------------------------------------------------------


def normal(rng: torch.Generator, *shape: int, scale: float = 1.0) -> torch.Tensor:
    """Random gradients."""
    return torch.randn(*shape, generator=rng) * scale


@check("a9.clip_grad_norm", 2.5, "takes the norm over all shards, and replicated ones once")
def test_clip_values(cluster: Cluster, rng: torch.Generator) -> None:
    def shards(world: int) -> list[list[torch.Tensor | None]]:
        return [[normal(rng, 5, 3), normal(rng, 7, scale=rank + 1.0)] for rank in range(world)]

    for world in (1, 2, 4):
        both: list[torch.Tensor | None] = [normal(rng, 4), normal(rng, 2, 2, scale=3.0)]
        clips = [
            Clip("sharded and replicated gradients", shards(world), both, 1.0),
            Clip("nothing replicated", shards(world), [], 0.5),
            Clip("a norm below max_norm", shards(world), both, 1e4),
            Clip("max_norm=inf", shards(world), both, math.inf),
        ]
        if world == 4:
            clips.append(Clip("a sub-group", shards(3), both, 2.0, ranks=[3, 0, 2]))
        outcome = run_clips(cluster, clips, world)
        for number, clip in enumerate(clips):
            judge_clip(clip, [answers[number] for answers in outcome.outputs])


@check("a9.clip_grad_norm", 1.5, "takes missing gradients, empty lists and 16-bit gradients")
def test_clip_odd(cluster: Cluster, rng: torch.Generator) -> None:
    some: list[torch.Tensor | None] = [normal(rng, 6), None, normal(rng, 3, 4)]
    fine = [[(normal(rng, 250) * 1e-2).bfloat16()] for _ in range(3)]
    clips = [
        Clip("gradients that are None", [some, [None], list(reversed(some))], [None], 1.0),
        Clip("shards on one rank only", [[], some, []], [normal(rng, 5)], 1.0),
        Clip("empty lists", [[], [], []], [], 1.0),
        Clip("replicated ones alone", [[], [], []], [normal(rng, 5, scale=9.0)], 1.0),
        Clip("gradients of zeros", [[torch.zeros(4)]] * 3, [torch.zeros(2)], 1.0),
        Clip("bfloat16", fine, [(normal(rng, 200) * 1e-2).bfloat16()], 0.05),
        Clip("float64 beside bfloat16", [[normal(rng, 9).double()], *fine[1:]], [], 0.05),
    ]
    outcome = run_clips(cluster, clips, 3)
    for number, clip in enumerate(clips):
        judge_clip(clip, [answers[number] for answers in outcome.outputs])


LARGEST = 64  # bytes that a rank may send: a few numbers


@check("a9.clip_grad_norm", 1.5, "sends a number, not gradients")
def test_clip_bytes(cluster: Cluster, rng: torch.Generator, metrics: Metrics) -> None:
    world = 4
    shards = [[normal(rng, 300), normal(rng, 200)] for _ in range(world)]
    clip = Clip("1,500 bytes of gradients", shards, [normal(rng, 100)], 1.0)
    outcome = run_clips(cluster, [clip], world)
    for rank in range(world):
        operations = [op for op in outcome.trace.operations(rank) if op.kind != "barrier"]
        nbytes = sent(operations, world)
        metrics["bytes_per_rank"] = max(nbytes, metrics.get("bytes_per_rank", 0))
        if nbytes == 0:
            raise CheckFailed(f"rank {rank} sent nothing", cause=causes.LOCAL_NORM)
        if nbytes > LARGEST:
            raise CheckFailed(
                f"rank {rank}: {words(operations)}, in which it sends {nbytes} bytes to the other "
                f"{world - 1} ranks; expected at most {LARGEST}: the squares are added up before "
                f"they are sent",
                cause=causes.sends_much(operations),
            )


@check("a9.clip_grad_norm", 0.5, "refuses a max_norm that is not above 0")
def test_clip_refusals(cluster: Cluster) -> None:
    for value in (0.0, -1.0, math.nan):
        clip = Clip(f"max_norm={value}", [[torch.ones(2)]] * 2, [], value)
        outcome = run_clips(cluster, [clip], 2)
        for rank, answers in enumerate(outcome.outputs):
            number = f"{value}".removesuffix(".0")
            refused(f"{clip.label}: rank {rank}", answers[0], [number], causes.MAX_NORM)
