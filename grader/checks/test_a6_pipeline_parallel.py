"""The checks of assignment 6: schedules on paper, one stage, whole pipelines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from grader.checks import pipeline_models as models
from grader.checks.a6_checks_executor import *  # noqa: F403
from grader.checks.causes_pipeline import ratio_cause, why_idle, why_zero_bubble_idles
from grader.checks.framework import CheckFailed, check
from grader.checks.pipeline_bench import (
    Size,
    ask,
    expect_bubble,
    expect_makespan,
    expect_peaks,
    expect_refused,
    expect_value_error,
)
from grader.checks.pipeline_judge import (
    COSTS,
    fill_bubble,
    measure,
    one_f_one_b_makespan,
    smallest_largest_stage,
    step_text,
    zero_bubble_bubble,
)
from grader.checks.pipeline_plans import both_ways, folded, greedy_plan, in_line, round_robin
from grader.checks.pipeline_stages import (
    FREED_MODES,
    STAGE_MODELS,
    expect_stage,
    stage_case,
    total_flops,
)
from grader.checks.world import SimulatedCluster

#: Three first: what is wrong with a schedule shows best among few ranks, but not on one alone.
RANKS = (3, 2, 1, 4, 5, 8, 16)


def one_way(stages: int, microbatches: int) -> Size:
    """A size of the schedules in which rank r holds stage r."""
    label = f"{stages} stages, {microbatches} micro-batches"
    return Size((stages, microbatches), label, stages, stages, microbatches, in_line)


def interleaved(ranks: int, microbatches: int, chunks: int) -> Size:
    """A size of the interleaved schedule."""
    label = f"{ranks} ranks, {microbatches} micro-batches, {chunks} chunks a rank"
    return Size(
        (ranks, microbatches, chunks),
        label,
        ranks,
        ranks * chunks,
        microbatches,
        round_robin(ranks),
    )


ONE_WAY = [
    one_way(p, m)
    for p in RANKS
    for m in dict.fromkeys((2 * p, 1, 2, 3, p - 1 or 1, p, p + 1, 3 * p + 1))
]
INTERLEAVED = [
    interleaved(p, p * k, v) for p in RANKS for k in (2, 1, 3) for v in (2, 1, 3) if p * k * v < 100
]
TOO_FEW = [((0, 4), (0,)), ((4, 0), (0,)), ((-1, 4), (-1,))]


# partition_layers ------------------------------------------------------------------------------


@check("a6.partition_layers", points=4, name="makes the largest stage as small as can be")
def test_partition_is_as_even_as_can_be(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    cases: list[tuple[list[float], int]] = [
        ([1.0] * 8, 4), ([1.0] * 10, 4), ([5.0, 1, 1, 1, 1, 1], 3), ([1.0, 1, 1, 1, 1, 5], 3),
        ([0.0, 0.0, 3.0], 3), ([7.0], 1), ([2.0, 9.0, 2.0], 2), ([0.0] * 5, 2),
        ([3.0, 1, 4, 1, 5], 5),
    ]  # fmt: skip
    for layers, stages in ((6, 2), (9, 4), (13, 5), (40, 8), (30, 29), (24, 1)):
        cases.append((torch.rand(layers, generator=rng, dtype=torch.float64).tolist(), stages))
        cases.append((torch.randint(1, 9, (layers,), generator=rng).double().tolist(), stages))
    asked = [{"costs": costs, "stages": stages} for costs, stages in cases]
    outputs, _ = cluster.run("a6:partitions", [{"cases": asked}], task="a6.partition_layers")
    for (costs, stages), answer in zip(cases, outputs[0], strict=True):
        shown = f"partition_layers({[round(c, 3) for c in costs]}, {stages})"
        cut = answer["cut"]
        if cut is None:
            raise CheckFailed(f"{shown}: expected a list of (begin, end), got {answer['shown']}")
        bounds = [begin for begin, _ in cut] + [len(costs)]
        follows = all(end == bounds[i + 1] for i, (_, end) in enumerate(cut))
        if len(cut) != stages or bounds[0] != 0 or not follows:
            raise CheckFailed(
                f"{shown}: {cut} are not {stages} ranges that cover layers 0 … {len(costs) - 1} "
                f"in order",
                cause="end is exclusive: each range begins where the one before ends",
            )
        if any(end <= begin for begin, end in cut):
            raise CheckFailed(f"{shown}: {cut} has an empty stage")
        largest = max(sum(costs[begin:end]) for begin, end in cut)
        best = smallest_largest_stage(costs, stages)
        if largest > best * (1 + 1e-9):
            raise CheckFailed(
                f"{shown}: the largest stage of {cut} costs {largest:.6g}, expected {best:.6g}",
                cause=_why_uneven(cut),
            )


def _why_uneven(cut: Sequence[Sequence[int]]) -> str:
    sizes = [end - begin for begin, end in cut]
    if max(sizes) - min(sizes) <= 1:
        return "the stages have equal numbers of layers, whatever the layers cost"
    return "stages filled one after the other up to a limit are not the best cut"


@check("a6.partition_layers", points=2, name="refuses more stages than layers")
def test_partition_refuses(cluster: SimulatedCluster) -> None:
    cases: list[tuple[list[float], int, list[int]]] = [
        ([1.0, 2.0], 3, [3, 2]), ([], 1, [1, 0]), ([1.0], 0, [0])
    ]  # fmt: skip
    asked = [{"costs": costs, "stages": stages, "refused": True} for costs, stages, _ in cases]
    outputs, _ = cluster.run("a6:partitions", [{"cases": asked}], task="a6.partition_layers")
    for (costs, stages, numbers), answer in zip(cases, outputs[0], strict=True):
        expect_value_error(answer["error"], f"partition_layers({costs}, {stages})", numbers)


# schedules -------------------------------------------------------------------------------------


def row(name: str, points: float, demand: str, *values: object) -> Any:
    """A row of a table of checks: `values` after the scheduler's name."""
    mark = pytest.mark.check(task=f"a6.{name}", points=float(points), name=demand)
    return pytest.param(f"a6.{name}", *values, marks=mark, id=name)


VALID = "does everything once, where and when it can"


@pytest.mark.parametrize(
    ("task", "sizes"),
    [
        row("gpipe_schedule", 3, VALID, ONE_WAY),
        row("one_f_one_b_schedule", 4, VALID, ONE_WAY),
        row("interleaved_schedule", 4, VALID, INTERLEAVED),
        row("zero_bubble_schedule", 4, VALID, ONE_WAY),
    ],
)
def test_schedule_is_valid(cluster: SimulatedCluster, task: str, sizes: list[Size]) -> None:
    ask(cluster, task, sizes)


IDLES = "idles no longer than the table says"


@pytest.mark.parametrize(
    ("task", "sizes"),
    [
        row("gpipe_schedule", 2, IDLES, ONE_WAY),
        row("one_f_one_b_schedule", 4, IDLES, ONE_WAY),
        row("interleaved_schedule", 4, IDLES, INTERLEAVED),
    ],
)
def test_schedule_fills_and_drains_only(
    cluster: SimulatedCluster, metrics: dict[str, Any], task: str, sizes: list[Size]
) -> None:
    for plan in ask(cluster, task, sizes):
        for costs in COSTS:
            measured = expect_bubble(plan, costs, fill_bubble(len(plan.ranks), costs), why_idle)
            metrics[f"bubble, {plan.label}, FB={costs.fb:g}"] = max(measured.bubbles)


KEEPS = "keeps no more activations than the table says"


@pytest.mark.parametrize(
    ("task", "sizes"),
    [
        row("gpipe_schedule", 2, KEEPS, ONE_WAY),
        row("one_f_one_b_schedule", 4, KEEPS, ONE_WAY),
        row("interleaved_schedule", 4, KEEPS, INTERLEAVED),
        row("zero_bubble_schedule", 5, KEEPS, ONE_WAY),
    ],
)
def test_schedule_keeps_few_activations(
    cluster: SimulatedCluster, task: str, sizes: list[Size]
) -> None:
    for size, plan in zip(sizes, ask(cluster, task, sizes), strict=True):
        p, m = size.ranks, size.microbatches
        if task == "a6.gpipe_schedule":
            most = [m] * p
        elif task == "a6.one_f_one_b_schedule":
            most = [min(p - rank, m) for rank in range(p)]
        elif task == "a6.interleaved_schedule":
            chunks = size.arguments[2]
            most = [(chunks - 1) * p + 2 * (p - 1 - rank) + 1 for rank in range(p)]
        else:
            most = [min(p, m)] * p
        expect_peaks(plan, most)


REFUSES = "refuses sizes that make no pipeline"


@pytest.mark.parametrize(
    ("task", "cases"),
    [
        row("gpipe_schedule", 1, REFUSES, TOO_FEW),
        row("interleaved_schedule", 2, REFUSES, [((4, 6, 2), (4, 6)), ((3, 4, 2), (3, 4))]),
    ],
)
def test_schedule_refuses(
    cluster: SimulatedCluster, task: str, cases: list[tuple[tuple[int, ...], tuple[int, ...]]]
) -> None:
    expect_refused(cluster, task, cases)


@check("a6.zero_bubble_schedule", points=5, name="idles no longer than ZB1P where m >= p")
def test_zero_bubble_idles_less(cluster: SimulatedCluster, metrics: dict[str, Any]) -> None:
    sizes = [size for size in ONE_WAY if size.microbatches >= size.ranks]
    for plan in ask(cluster, "a6.zero_bubble_schedule", sizes):
        for costs in COSTS:
            most = zero_bubble_bubble(len(plan.ranks), costs)
            measured = expect_bubble(plan, costs, most, why_zero_bubble_idles)
            metrics[f"bubble, {plan.label}, FB={costs.fb:g}"] = max(measured.bubbles)


@check("a6.zero_bubble_schedule", points=2, name="takes no longer than 1F1B where m < p")
def test_zero_bubble_short_batches(cluster: SimulatedCluster) -> None:
    sizes = [size for size in ONE_WAY if size.microbatches < size.ranks]
    for size, plan in zip(sizes, ask(cluster, "a6.zero_bubble_schedule", sizes), strict=True):
        for costs in COSTS:
            most = one_f_one_b_makespan(size.ranks, size.microbatches, costs)
            expect_makespan(plan, costs, most, why_zero_bubble_idles)


@check("a6.bubble_ratio", points=4, name="is the largest idle time over the makespan")
def test_bubble_ratio(cluster: SimulatedCluster) -> None:
    plans = [
        greedy_plan("4 ranks in line", 4, 4, 6, in_line),
        greedy_plan("4 ranks in line, split", 4, 4, 3, in_line, split=True),
        greedy_plan("3 ranks, a V with pairs", 3, 6, 7, folded(3), pairs=True),
        greedy_plan("4 ranks, both ways, at random", 4, 4, 8, both_ways(4, 8), seed=3, pairs=True),
        greedy_plan("1 rank", 1, 1, 2, in_line),
    ]
    cases = [
        {"schedule": [" ".join(map(step_text, s)) for s in plan.ranks], "costs": list(costs)}
        for plan in plans
        for costs in COSTS
    ]
    outputs, _ = cluster.run("a6:ratios", [{"cases": cases}], task="a6.bubble_ratio")
    expected = [(plan, costs) for plan in plans for costs in COSTS]
    for (plan, costs), answer in zip(expected, outputs[0], strict=True):
        measured = measure(plan, costs)
        wanted = max(measured.bubbles) / measured.makespan
        got = answer["ratio"]
        if got is None or not abs(got - wanted) <= 1e-9:
            raise CheckFailed(
                f"bubble_ratio of {plan.label} at {tuple(costs)}: expected {wanted:.6g} "
                f"(largest bubble {max(measured.bubbles):.6g}, makespan {measured.makespan:.6g}), "
                f"got {answer['shown']}",
                cause=ratio_cause(got, measured, plan),
            )


# PipelineStage ---------------------------------------------------------------------------------


BOTH = ("perceptron", "block")


@pytest.mark.parametrize(
    ("task", "modes", "names"),
    [
        row("PipelineStage", 3, "computes outputs and gradients", ("B",), BOTH),
        row("PipelineStage", 4, "cuts the backward in two", ("IW", "late"), BOTH),
        row("PipelineStage", 4, "takes modules of every kind", ("B", "IW", "late"), STAGE_MODELS),
    ],
)
def test_stage(
    cluster: SimulatedCluster,
    rng: torch.Generator,
    task: str,
    modes: tuple[str, ...],
    names: Sequence[str],
) -> None:
    cases = [stage_case(rng, name, mode) for name in names for mode in modes]
    given = [{"cases": [case.given for case in cases]}]
    outputs, _ = cluster.run("a6:stage", given, task=task)
    for case, answer in zip(cases, outputs[0], strict=True):
        expect_stage(case, answer)


@check("a6.PipelineStage", points=2, name="does not compute anything twice in a split backward")
def test_split_backward_costs_no_more(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    rows, width = 96, models.WIDTH * 8
    tensors = [torch.randn(rows, width, generator=rng, dtype=torch.float64) for _ in range(2)]
    state = models.random_state("perceptrons", rng)
    product = 2 * rows * width * width
    for only_input, parts, what in ((True, 6, "backward_input"), (False, 9, "backward_weight")):
        given = {"state": state, "input": tensors[0], "gradient": tensors[1]}
        _, trace = cluster.run(
            "a6:stage_flops",
            [given | {"only_input": only_input}],
            task="a6.PipelineStage",
            compute=True,
        )
        found = total_flops(trace)
        if found > 1.15 * parts * product:
            raise CheckFailed(
                f"three linear layers, after forward and {what}: {found / product:.1f} products of "
                f"{rows} × {width} × {width}, expected {parts}",
                cause="weight gradients are computed on the way to the inputs"
                if only_input
                else "the way back through the layers is computed again for the weights",
            )


@check("a6.PipelineStage", points=3, name="lets go of a micro-batch's memory after its backward")
def test_stage_frees_memory(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    tensors = [torch.randn(5, models.WIDTH, generator=rng, dtype=torch.float64) for _ in range(2)]
    given = {
        "modes": list(FREED_MODES),
        "model": "block",
        "state": models.random_state("block", rng),
        "input": tensors[0],
        "gradient": tensors[1],
    }
    outputs, _ = cluster.run("a6:stage_memory", [given], task="a6.PipelineStage")
    for mode, alive in outputs[0].items():
        if alive:
            raise CheckFailed(
                f"after {FREED_MODES[mode]} there is still alive: {', '.join(alive)}",
                cause="the stage keeps what it stored in forward, or the graph (retain_graph)",
            )
