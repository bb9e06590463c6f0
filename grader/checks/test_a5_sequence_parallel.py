"""The checks of assignment 5: sequence parallelism, overlapped products, context parallelism."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from grader.checks import a4_mappings as mappings
from grader.checks import a4_volume as volume
from grader.checks import a5_context as context
from grader.checks import a5_ring as ring
from grader.checks.a4_cases import GROUP, GROUP_WORLD, PAIR, layer_case, run_cases
from grader.checks.a4_dense import spec
from grader.checks.a4_judges import expect_refused, judge_layer, judge_refusal, judge_shards
from grader.checks.a4_masks import judge_masks
from grader.checks.a5_block import block, judge_block_bytes, judge_saved, norm, run_judged
from grader.checks.a5_cases import CallCase, run, run_all
from grader.checks.a5_products import MATMUL_RS, PRODUCTS, judge_overlap, products
from grader.checks.a5_throughput import is_faster
from grader.checks.framework import check
from grader.checks.throughput import Throughput
from grader.checks.world import SimulatedCluster

Metrics = dict[str, Any]

GATHER, SCATTER = "a5.gather_from_sequence_parallel", "a5.scatter_to_sequence_parallel"
REDUCE = "a5.reduce_scatter_to_sequence_parallel"
NORM, BLOCK = "a5.SequenceParallelLayerNorm", "a5.SequenceParallelBlock"
RING = ring.RING


def row(task: str, points: float, demand: str) -> Any:
    """A row of a table of checks."""
    mark = pytest.mark.check(task=task, points=float(points), name=demand)
    return pytest.param(task, marks=mark, id=task)


# mappings -----------------------------------------------------------------------------------------

RIGHT = "is right forward and backward"
FRUGAL = "sends what one collective sends in each direction, and no more"
IN_GROUPS = "works in sub-groups"


@pytest.mark.parametrize(
    "task", [row(GATHER, 1.5, RIGHT), row(REDUCE, 1, RIGHT), row(SCATTER, 1, RIGHT)]
)
def test_mapping_values(cluster: SimulatedCluster, rng: torch.Generator, task: str) -> None:
    mapping = mappings.MAPPINGS[task]
    for world in (1, 2, 3):
        kinds: tuple[dict[str, Any], ...] = (
            {},
            {"shape": (2, 1, 3), "label": "3 dimensions"},
            {"strided": True, "label": "not contiguous"},
            {"scalar_gradient": True, "label": "gradient of sum(), expanded"},
            {"dtype": torch.bfloat16, "label": "bfloat16"},
        )
        cases = [mappings.make(mapping, rng, world, **kind) for kind in kinds]
        mappings.run(cluster, mapping, cases)


@pytest.mark.parametrize(
    "task", [row(GATHER, 1, IN_GROUPS), row(REDUCE, 0.5, IN_GROUPS), row(SCATTER, 0.5, IN_GROUPS)]
)
def test_mapping_groups(cluster: SimulatedCluster, rng: torch.Generator, task: str) -> None:
    mapping = mappings.MAPPINGS[task]
    cases = [mappings.make(mapping, rng, GROUP_WORLD, ranks) for ranks in (GROUP, PAIR)]
    mappings.run(cluster, mapping, cases)


@pytest.mark.parametrize(
    "task", [row(GATHER, 1.5, FRUGAL), row(REDUCE, 1, FRUGAL), row(SCATTER, 1, FRUGAL)]
)
def test_mapping_bytes(
    cluster: SimulatedCluster, rng: torch.Generator, metrics: Metrics, task: str
) -> None:
    mappings.judge_bytes(cluster, mappings.MAPPINGS[task], rng, metrics)


REFUSES = "refuses sizes that the ranks do not divide"


@pytest.mark.parametrize("task", [row(REDUCE, 0.5, REFUSES), row(SCATTER, 0.5, REFUSES)])
def test_mapping_refuses(cluster: SimulatedCluster, task: str) -> None:
    mappings.judge_refusals(cluster, mappings.MAPPINGS[task])


# the norm -----------------------------------------------------------------------------------------


@check(NORM, points=4, name="equals the dense norm, and sums its parameters' gradients")
def test_norm_values(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    kinds: tuple[dict[str, Any], ...] = ({}, {"bias": False}, {"elementwise_affine": False})
    for world in (1, 2, 3):
        cases = [norm(rng, world, **kind) for kind in kinds]
        run_judged(cluster, NORM, cases)


@check(NORM, points=1, name="trains as the dense norm does")
def test_norm_steps(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    run_judged(cluster, NORM, [norm(rng, 2, steps=2), norm(rng, 2, steps=2, frozen=("weight",))])


@check(NORM, points=1, name="works in sub-groups")
def test_norm_groups(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    run_judged(cluster, NORM, [norm(rng, GROUP_WORLD, ranks) for ranks in (GROUP, PAIR)])


@check(NORM, points=2, name="sends nothing but the gradients of its parameters")
def test_norm_bytes(cluster: SimulatedCluster, rng: torch.Generator, metrics: Metrics) -> None:
    world = 4
    case = norm(rng, world)
    outcome = run_cases(cluster, NORM, [case])
    parameters = sum(value.numel() * 8 for value in case.state.values())
    for rank, (answer,) in enumerate(outcome.outputs):
        forward, backward = volume.phases(outcome.trace, rank, answer["steps"][0]["marks"])
        where = f"{case.label}: rank {rank}"
        volume.expect_phase(
            forward, world, 0, f"{where}, forward", "nothing",
            "the norm of a token needs that token only",
        )  # fmt: skip
        metrics["backward_bytes"] = volume.expect_phase(
            backward, world, volume.moved("all_reduce", parameters, world), f"{where}, backward",
            "one all-reduce of the parameters' gradients", "tokens or their gradients are sent",
        )  # fmt: skip
    judge_layer(case, [answers[0] for answers in outcome.outputs])


# the block ----------------------------------------------------------------------------------------


@check(BLOCK, points=2.5, name="equals the dense block, forward and backward")
def test_block_values(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    run_judged(cluster, BLOCK, [block(rng, 1)])
    run_judged(cluster, BLOCK, [block(rng, 2), block(rng, 2, bias=False, causal=False)])
    run_judged(cluster, BLOCK, [block(rng, 3, grouped=2)])


@check(BLOCK, points=0.5, name="trains as the dense block does")
def test_block_steps(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    run_judged(cluster, BLOCK, [block(rng, 2, steps=2)])


@check(BLOCK, points=0.5, name="works in sub-groups")
def test_block_groups(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    run_judged(cluster, BLOCK, [block(rng, GROUP_WORLD, GROUP)])


@check(BLOCK, points=0.5, name="keeps its own shards only, in memory of their own")
def test_block_shards(cluster: SimulatedCluster, rng: torch.Generator, metrics: Metrics) -> None:
    case = block(rng, 2)
    outcome = run_cases(cluster, BLOCK, [case])
    metrics |= judge_shards(case, [answers[0] for answers in outcome.outputs])


@check(BLOCK, points=2, name="sends the bytes of tensor parallelism")
def test_block_bytes(cluster: SimulatedCluster, rng: torch.Generator, metrics: Metrics) -> None:
    judge_block_bytes(cluster, rng, metrics)


@check(BLOCK, points=2, name="keeps a share of the dense block's activations")
def test_block_saved(cluster: SimulatedCluster, rng: torch.Generator, metrics: Metrics) -> None:
    for world in (2, 4):
        judge_saved(cluster, rng, metrics, world)


@check(BLOCK, points=1.5, name="draws other masks on every rank, and leaves ranks alike")
def test_block_dropout(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    case = block(rng, 2, p=0.3, attention_p=0.4, seed=77)
    outcome = run_cases(cluster, BLOCK, [case])
    answers = [answers[0] for answers in outcome.outputs]
    judge_masks(case, answers, BLOCK)
    judge_layer(case, answers)


@check(BLOCK, points=0.5, name="refuses sizes that the ranks do not divide")
def test_block_refuses(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    heads = {"hidden": 6, "head_dim": 2}
    wrong = (
        ({"heads": 4, "kv_heads": 4}, 6, (4, 3)),
        ({"heads": 6, "kv_heads": 2}, 6, (2, 3)),
        ({"heads": 3, "kv_heads": 3}, 8, (8, 3)),
    )
    cases = [
        layer_case(
            rng, "block", spec(
                "block", hidden=6, dropout=0.0, attention={**heads, **counts},
                mlp={"hidden": 6, "intermediate": inner},
            ), 3, label="sizes", refused=True,
        )
        for counts, inner, _ in wrong
    ]  # fmt: skip
    outcome = run_cases(cluster, BLOCK, cases)
    for number, (case, (*_, numbers)) in enumerate(zip(cases, wrong, strict=True)):
        expect_refused(case, [answers[number] for answers in outcome.outputs], numbers)


# products -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "task", [row(t, 2.5, "is the rank's share of the product") for t in PRODUCTS]
)
def test_product_values(cluster: SimulatedCluster, rng: torch.Generator, task: str) -> None:
    cases = []
    for world in (1, 2, 3):
        cases += [products(task, rng, world, rows=rows, gradient=False) for rows in (1, 5, 8)]
        if task == MATMUL_RS:
            for chunks in (1, 3, 9):
                label = f"chunks={chunks}"
                cases.append(products(task, rng, world, label=label, gradient=False))
                cases[-1].facts["chunks"] = chunks
    run_all(cluster, task, cases)


@pytest.mark.parametrize(
    "task", [row(t, 2, "gives both arguments their gradients") for t in PRODUCTS]
)
def test_product_gradients(cluster: SimulatedCluster, rng: torch.Generator, task: str) -> None:
    run_all(cluster, task, [products(task, rng, world) for world in (1, 2, 3)])


@pytest.mark.parametrize("task", [row(t, 0.5, IN_GROUPS) for t in PRODUCTS])
def test_product_groups(cluster: SimulatedCluster, rng: torch.Generator, task: str) -> None:
    run_all(cluster, task, [products(task, rng, GROUP_WORLD, ranks) for ranks in (GROUP, PAIR)])


@pytest.mark.parametrize(
    "task", [row(t, 2, "communicates while it computes, and sends no more") for t in PRODUCTS]
)
def test_product_overlap(
    cluster: SimulatedCluster, rng: torch.Generator, metrics: Metrics, task: str
) -> None:
    metrics |= judge_overlap(cluster, rng, task)


@pytest.mark.parametrize("task", [row(t, 1.25, "refuses shapes that do not fit") for t in PRODUCTS])
def test_product_refuses(cluster: SimulatedCluster, rng: torch.Generator, task: str) -> None:
    cases = [products(task, rng, 3, gradient=False, label="shapes that do not fit")]
    names: list[list[object]] = [["a", "b"]]
    for tensors in cases[0].tensors:
        tensors[1] = torch.cat([tensors[1], tensors[1]])
    if task == MATMUL_RS:
        cases.append(products(task, rng, 3, gradient=False, label="17 rows"))
        cases[1].tensors = [[a[:17], b] for a, b in cases[1].tensors]
        cases.append(products(task, rng, 3, gradient=False, label="chunks=0"))
        cases[2].facts["chunks"] = 0
        names += [[17, 3], ["chunks", 0]]
    for case in cases:
        case.refused, case.judge = True, None
    outcome = run(cluster, task, cases)
    for number, (case, words) in enumerate(zip(cases, names, strict=True)):
        for rank, answers in enumerate(outcome.outputs):
            judge_refusal(answers[number].get("error"), words, f"{case.label}: rank {rank}")


@pytest.mark.parametrize(
    "task", [row(t, 2.75, "is faster than one after the other") for t in PRODUCTS]
)
def test_throughput(throughput: Throughput, task: str) -> None:
    is_faster(throughput, task)


# merging and shares -------------------------------------------------------------------------------


@check(context.MERGE, points=2, name="merges by log-sum-exp")
def test_merge_values(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    context.merge_values(cluster, rng)


@check(context.MERGE, points=1.5, name="does not overflow")
def test_merge_large(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    context.merge_large(cluster, rng)


@check(context.MERGE, points=1.5, name="copes with sides that attended to nothing")
def test_merge_nothing(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    context.merge_nothing(cluster, rng)


@check(context.MERGE, points=1, name="keeps the dtypes of 16-bit outputs")
def test_merge_dtypes(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    context.merge_dtypes(cluster, rng)


SHARES = (context.SHARD, context.UNSHARD)


@pytest.mark.parametrize(
    "task",
    [row(SHARES[0], 2, "cuts chunks i and 2n − 1 − i"), row(SHARES[1], 2, "joins what was cut")],
)
def test_share_values(cluster: SimulatedCluster, rng: torch.Generator, task: str) -> None:
    context.share_values(cluster, rng, task == context.UNSHARD)


@pytest.mark.parametrize("task", [row(t, 0.5, IN_GROUPS) for t in SHARES])
def test_share_groups(cluster: SimulatedCluster, rng: torch.Generator, task: str) -> None:
    for ranks in (GROUP, PAIR):
        run(cluster, task, context.shares(rng, task == context.UNSHARD, GROUP_WORLD, ranks))


@pytest.mark.parametrize(
    "task", [row(SHARES[0], 0.5, "sends nothing"), row(SHARES[1], 1, "sends one all-gather")]
)
def test_share_bytes(
    cluster: SimulatedCluster, rng: torch.Generator, metrics: Metrics, task: str
) -> None:
    metrics["bytes_sent"] = context.share_bytes(cluster, rng, task == context.UNSHARD)


@pytest.mark.parametrize(
    "task",
    [
        row(SHARES[0], 1, "refuses sizes that are not 2n chunks"),
        row(SHARES[1], 0.5, "refuses odd sizes"),
    ],
)
def test_share_refuses(cluster: SimulatedCluster, task: str) -> None:
    unshard = task == context.UNSHARD
    wrong = ((3, (5,)),) if unshard else ((9, (9, 6)), (4, (4, 6)))
    cases = [
        CallCase(f"3 ranks, {n} rows", 3, None, [[torch.ones(n, 2)]] * 3, more=(0,), refused=True)
        for n, _ in (((5, ()),) if unshard else wrong)
    ]
    numbers: list[tuple[int, ...]] = [(5,)] if unshard else [words for _, words in wrong]
    outcome = run(cluster, task, cases)
    for at, (case, words) in enumerate(zip(cases, numbers, strict=True)):
        for rank, answers in enumerate(outcome.outputs):
            judge_refusal(answers[at].get("error"), words, f"{case.label}: rank {rank}")


# ring attention -----------------------------------------------------------------------------------


@check(RING, points=4, name="attends to the whole sequence")
def test_ring_values(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    ring.values(cluster, rng, causal=False)


@check(RING, points=3, name="is causal on contiguous shares")
def test_ring_contiguous(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    ring.values(cluster, rng, causal=True, layout="contiguous")


@check(RING, points=4, name="is causal on zigzag shares")
def test_ring_zigzag(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    ring.values(cluster, rng, causal=True, layout="zigzag")


@check(RING, points=1, name="works in sub-groups")
def test_ring_groups(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    ring.groups(cluster, rng)


@check(RING, points=3, name="sends keys and values once around, and their gradients home")
def test_ring_bytes(cluster: SimulatedCluster, rng: torch.Generator, metrics: Metrics) -> None:
    ring.sent(cluster, rng, metrics)


@check(RING, points=3, name="holds few blocks, and keeps none of other ranks")
def test_ring_memory(cluster: SimulatedCluster, rng: torch.Generator, metrics: Metrics) -> None:
    ring.memory(cluster, rng, metrics)


@check(RING, points=2.5, name="computes no hidden blocks, and zigzag shares the work evenly")
def test_ring_work(cluster: SimulatedCluster, rng: torch.Generator, metrics: Metrics) -> None:
    ring.work(cluster, rng, metrics)


@check(RING, points=2.5, name="hides the transfer of blocks behind attention")
def test_ring_overlap(cluster: SimulatedCluster, rng: torch.Generator, metrics: Metrics) -> None:
    ring.overlap(cluster, rng, metrics)


@check(RING, points=1, name="refuses arguments that do not fit")
def test_ring_refuses(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    ring.refuses(cluster, rng)
