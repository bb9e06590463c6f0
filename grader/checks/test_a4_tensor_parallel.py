"""The checks of assignment 4: mappings, layers, the loss, and the halves of a block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from grader.checks import a4_mappings as mappings
from grader.checks import a4_volume as volume
from grader.checks.a4_cases import (
    GROUP,
    GROUP_WORLD,
    PAIR,
    LayerCase,
    by_world,
    layer_case,
    run_cases,
)
from grader.checks.a4_checks_loss import *  # noqa: F403
from grader.checks.a4_dense import spec
from grader.checks.a4_judges import expect_refused, judge_layer, judge_refusal, judge_shards
from grader.checks.a4_layers import (
    ATTENTION,
    COLUMN,
    EMBEDDING,
    MAKERS,
    MLP,
    ROW,
    attention,
    embedding,
    make,
    variants,
)
from grader.checks.a4_masks import judge_masks
from grader.checks.a4_throughput import keeps_up
from grader.checks.causes_a4 import INDEX_NOT_REFUSED
from grader.checks.framework import check
from grader.checks.throughput import Throughput
from grader.checks.world import SimulatedCluster

COPY, REDUCE = "a4.copy_to_tensor_parallel", "a4.reduce_from_tensor_parallel"
SCATTER, GATHER = "a4.scatter_to_tensor_parallel", "a4.gather_from_tensor_parallel"


def row(task: str, points: float, demand: str) -> Any:
    """A row of a table of checks."""
    mark = pytest.mark.check(task=task, points=float(points), name=demand)
    return pytest.param(task, marks=mark, id=task)


# mappings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "task",
    [
        *(row(task, 2, "is right forward and backward") for task in (COPY, REDUCE)),
        *(row(task, 1.5, "is right forward and backward") for task in (SCATTER, GATHER)),
    ],
)
def test_mapping_values(cluster: SimulatedCluster, rng: torch.Generator, task: str) -> None:
    mapping = mappings.MAPPINGS[task]
    for world in (1, 2, 3):
        cases = [
            mappings.make(mapping, rng, world),
            mappings.make(mapping, rng, world, shape=(2, 1, 3), label="3 dimensions"),
            mappings.make(mapping, rng, world, strided=True, label="not contiguous"),
            mappings.make(
                mapping, rng, world, scalar_gradient=True, label="gradient of sum(), expanded"
            ),
            mappings.make(mapping, rng, world, dtype=torch.bfloat16, label="bfloat16"),
        ]
        mappings.run(cluster, mapping, cases)


@pytest.mark.parametrize(
    "task",
    [row(task, 0.5, "works in sub-groups") for task in (COPY, REDUCE, SCATTER, GATHER)],
)
def test_mapping_groups(cluster: SimulatedCluster, rng: torch.Generator, task: str) -> None:
    mapping = mappings.MAPPINGS[task]
    cases = [mappings.make(mapping, rng, GROUP_WORLD, ranks) for ranks in (GROUP, PAIR)]
    mappings.run(cluster, mapping, cases)


@pytest.mark.parametrize(
    "task",
    [
        row(task, 0.5, "changes neither its argument nor a gradient")
        for task in (COPY, REDUCE, SCATTER, GATHER)
    ],
)
def test_mapping_in_place(cluster: SimulatedCluster, rng: torch.Generator, task: str) -> None:
    mapping = mappings.MAPPINGS[task]
    beside = mapping.forward in ("same", "sum")
    for world in (2, 3):
        cases = [mappings.make(mapping, rng, world)]
        if beside:
            cases.append(
                mappings.make(mapping, rng, world, beside=True, label="used beside its argument")
            )
        mappings.run(cluster, mapping, cases)


@pytest.mark.parametrize(
    "task",
    [
        row(task, 1, "sends what one collective sends, in one direction only")
        for task in (COPY, REDUCE, SCATTER, GATHER)
    ],
)
def test_mapping_bytes(
    cluster: SimulatedCluster, rng: torch.Generator, metrics: dict[str, Any], task: str
) -> None:
    mappings.judge_bytes(cluster, mappings.MAPPINGS[task], rng, metrics)


@check(SCATTER, points=0.5, name="refuses sizes that the ranks do not divide")
def test_scatter_refuses(cluster: SimulatedCluster) -> None:
    mappings.judge_refusals(cluster, mappings.MAPPINGS[SCATTER])


@check(GATHER, points=0.5, name="joins shares whose gradient is not contiguous")
def test_gather_strided_gradient(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    mapping = mappings.MAPPINGS[GATHER]
    for world in (2, 3):
        case = mappings.make(mapping, rng, world, shape=(3, 2, 2), strided=True)
        mappings.run(cluster, mapping, [case])


# layers -------------------------------------------------------------------------------------------


def run_judged(cluster: SimulatedCluster, task: str, cases: Sequence[LayerCase]) -> None:
    """Run cases and judge their values."""
    for here in by_world(cases):
        outcome = run_cases(cluster, task, here, maker=MAKERS.get(task, "from_dense"))
        for number, case in enumerate(here):
            judge_layer(case, [answers and answers[number] for answers in outcome.outputs])


@pytest.mark.parametrize(
    "task",
    [
        row(COLUMN, 4, "equals the dense layer, forward and backward"),
        row(ROW, 4, "equals the dense layer, forward and backward"),
        row(EMBEDDING, 3.5, "equals the dense embedding, forward and backward"),
        row(MLP, 2, "equals the dense MLP, forward and backward"),
        row(ATTENTION, 2, "equals the dense attention, forward and backward"),
    ],
)
def test_layer_values(cluster: SimulatedCluster, rng: torch.Generator, task: str) -> None:
    run_judged(cluster, task, [case for world in (1, 2, 3) for case in variants(task, rng, world)])


@pytest.mark.parametrize(
    "task",
    [
        row(COLUMN, 1.5, "trains as the dense layer does"),
        row(ROW, 1.5, "trains as the dense layer does"),
        row(EMBEDDING, 1, "trains as the dense embedding does"),
        row(MLP, 1, "trains as the dense MLP does"),
        row(ATTENTION, 0.5, "trains as the dense attention does"),
    ],
)
def test_layer_steps(cluster: SimulatedCluster, rng: torch.Generator, task: str) -> None:
    cases = [make(task, rng, 2, steps=2)]
    if task in (COLUMN, ROW):
        cases.append(make(task, rng, 2, steps=2, frozen=("weight", "input")))
    run_judged(cluster, task, cases)


@pytest.mark.parametrize(
    "task",
    [
        row(COLUMN, 1.5, "works in sub-groups"),
        row(ROW, 1.5, "works in sub-groups"),
        row(EMBEDDING, 1.5, "works in sub-groups"),
        row(MLP, 0.5, "works in sub-groups"),
        row(ATTENTION, 0.5, "works in sub-groups"),
    ],
)
def test_layer_groups(cluster: SimulatedCluster, rng: torch.Generator, task: str) -> None:
    run_judged(cluster, task, [make(task, rng, GROUP_WORLD, ranks) for ranks in (GROUP, PAIR)])


@pytest.mark.parametrize(
    "task",
    [
        row(COLUMN, 2, "keeps its own shards only, in memory of their own"),
        row(ROW, 2, "keeps its own shards only, in memory of their own"),
        row(EMBEDDING, 1.5, "keeps its own rows only, in memory of their own"),
        row(MLP, 1, "keeps its own shards only, in memory of their own"),
        row(ATTENTION, 1, "keeps its own shards only, in memory of their own"),
    ],
)
def test_layer_shards(
    cluster: SimulatedCluster, rng: torch.Generator, metrics: dict[str, Any], task: str
) -> None:
    for world in (2, 4):
        case = make(task, rng, world)
        outcome = run_cases(cluster, task, [case], maker=MAKERS.get(task, "from_dense"))
        metrics |= judge_shards(case, [answers[0] for answers in outcome.outputs])


#: Collectives of the whole input or output that a layer may use: forward, backward.
ALLOWED = {
    (COLUMN, False): ((), ("all_reduce",)),
    (COLUMN, True): (("all_gather",), ("all_reduce",)),
    (ROW, False): (("all_reduce",), ()),
    (ROW, True): (("all_reduce",), ("all_gather",)),
    (EMBEDDING, False): (("all_reduce",), ()),
    (MLP, False): (("all_reduce",), ("all_reduce",)),
    (ATTENTION, False): (("all_reduce",), ("all_reduce",)),
}

EXTRA = {
    COLUMN: "the input's gradient needs one all-reduce, the output none until it is gathered",
    ROW: "forward, one all-reduce of the partial outputs is enough; backward, nothing is sent",
    EMBEDDING: "rows need one all-reduce, and their gradient is whole on every rank",
    MLP: "what is between the two layers is sent: it stays cut, by columns, then by rows",
    ATTENTION: "query, key and value each send a gradient of x: put one f before all three",
}


@pytest.mark.parametrize(
    "task",
    [
        row(COLUMN, 2, "sends nothing forward and one all-reduce backward"),
        row(ROW, 2, "sends one all-reduce forward and nothing backward"),
        row(EMBEDDING, 1.5, "sends one all-reduce forward and nothing backward"),
        row(MLP, 2, "sends one all-reduce forward and one backward"),
        row(ATTENTION, 1.5, "sends one all-reduce forward and one backward"),
    ],
)
def test_layer_bytes(
    cluster: SimulatedCluster, rng: torch.Generator, metrics: dict[str, Any], task: str
) -> None:
    world = 4
    for (name, other), directions in ALLOWED.items():
        if name != task:
            continue
        more = {"other": other} if task in (COLUMN, ROW) else {}
        case = make(task, rng, world, **more)
        outcome = run_cases(cluster, task, [case], maker=MAKERS.get(task, "from_dense"))
        whole = {"x": case.xs[0].numel() * 8, "y": case.gradients[0].numel() * 8}
        sizes = {COLUMN: ("y", "x"), ROW: ("y", "x")}.get(task, ("y", "y"))
        for rank, (answer,) in enumerate(outcome.outputs):
            phases = volume.phases(outcome.trace, rank, answer["steps"][0]["marks"])
            for direction, operations, kinds, size in zip(
                ("forward", "backward"), phases, directions, sizes, strict=True
            ):
                where = f"{case.label}: rank {rank}, {direction}"
                allowed = sum(volume.moved(kind, whole[size], world) for kind in kinds)
                expected = f"one {kinds[0]}" if kinds else "nothing"
                metrics[f"{direction}_bytes{'_' * other}{other or ''}"] = volume.expect_phase(
                    operations, world, allowed, where, expected, EXTRA[task]
                )
                volume.expect_calls(operations, "all_reduce", kinds.count("all_reduce"), where)
        judge_layer(case, [answers[0] for answers in outcome.outputs])


@pytest.mark.parametrize(
    "task",
    [
        row(COLUMN, 1, "refuses sizes that the ranks do not divide"),
        row(ROW, 1, "refuses sizes that the ranks do not divide"),
        row(EMBEDDING, 1, "refuses vocabularies that the ranks do not divide, and wrong indices"),
        row(MLP, 1, "refuses sizes that the ranks do not divide"),
        row(ATTENTION, 0.5, "refuses heads that the ranks do not divide"),
    ],
)
def test_layer_refuses(cluster: SimulatedCluster, rng: torch.Generator, task: str) -> None:
    heads = {"hidden": 6, "head_dim": 2}
    wrong = {
        COLUMN: [(spec("linear", in_features=3, out_features=7), (7, 3))],
        ROW: [(spec("linear", in_features=7, out_features=3), (7, 3))],
        EMBEDDING: [(spec("embedding", num_embeddings=10, embedding_dim=3), (10, 3))],
        MLP: [(spec("mlp", hidden=6, intermediate=8), (8, 3))],
        ATTENTION: [
            (spec("attention", heads=4, kv_heads=4, **heads), (4, 3)),
            (spec("attention", heads=6, kv_heads=2, **heads), (2, 3)),
        ],
    }[task]
    layer = {COLUMN: "column", ROW: "row", EMBEDDING: "embedding", MLP: "mlp"}.get(
        task, "attention"
    )
    cases = [layer_case(rng, layer, of, 3, label="sizes", refused=True) for of, _ in wrong]
    outcome = run_cases(cluster, task, cases, maker=MAKERS.get(task, "from_dense"))
    for number, (case, (_, numbers)) in enumerate(zip(cases, wrong, strict=True)):
        expect_refused(case, [answers[number] for answers in outcome.outputs], numbers)
    if task == EMBEDDING:
        refuse_indices(cluster, rng)


def refuse_indices(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    """An index outside the vocabulary is an error on every rank."""
    for index in (10, -1):
        case = embedding(rng, 2)
        case.xs[0][1, 1] = index
        outcome = run_cases(cluster, EMBEDDING, [case], maker="from_embedding", expect_errors=True)
        for rank in range(2):
            error = outcome.errors.get(rank)
            said = None
            if error is not None:
                kinds = [each.rpartition(".")[2] for each in (error.type, *error.bases)]
                said = {"type": error.type, "message": error.message, "bases": kinds}
            where = f"index {index} of 10 rows: rank {rank}"
            judge_refusal(said, [index], where, INDEX_NOT_REFUSED)


@check(ATTENTION, points=1.5, name="draws other masks on every rank, and leaves ranks alike")
def test_attention_dropout(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    for grouped in (1, 2):
        case = attention(rng, 2, None, grouped, p=0.4, seed=1234)
        outcome = run_cases(cluster, ATTENTION, [case])
        answers = [answers[0] for answers in outcome.outputs]
        judge_masks(case, answers, ATTENTION)
        judge_layer(case, answers)


@pytest.mark.parametrize(
    "task",
    [row(task, 2.5, "is about as fast as torch's tensor parallelism") for task in (MLP, ATTENTION)],
)
def test_throughput(throughput: Throughput, task: str) -> None:
    keeps_up(throughput, task)
