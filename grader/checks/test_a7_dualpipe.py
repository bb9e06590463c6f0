"""The checks of assignment 7: both schedules on paper, two passes at once, whole pipelines."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from grader.checks.causes_pipeline import why_slow
from grader.checks.compare import assert_same_bits
from grader.checks.framework import CheckFailed, check
from grader.checks.pipeline_bench import Size, ask, expect_makespan, expect_peaks, expect_refused
from grader.checks.pipeline_cases import judge_pipeline, make_batch, rank_inputs
from grader.checks.pipeline_judge import COSTS, Plan, dualpipe_makespan, step_text
from grader.checks.pipeline_plans import both_ways, folded, greedy_plan
from grader.checks.pipeline_runs import driver_stages, expect_time
from grader.checks.pipeline_throughput import keeps_up
from grader.checks.throughput import Throughput
from grader.checks.world import SimulatedCluster
from grader.fabric.cluster import uniform


def dual(ranks: int, microbatches: int) -> Size:
    """A size of DualPipe."""
    half = microbatches // 2
    return Size(
        (ranks, microbatches),
        f"{ranks} ranks, {microbatches} micro-batches",
        ranks,
        ranks,
        microbatches,
        both_ways(ranks, microbatches),
        lambda microbatch: microbatch // half,
    )


def cut(ranks: int, microbatches: int) -> Size:
    """A size of DualPipeV."""
    label = f"{ranks} ranks, {microbatches} micro-batches"
    return Size((ranks, microbatches), label, ranks, 2 * ranks, microbatches, folded(ranks))


# Four ranks with more than the fewest micro-batches first: there mistakes show best.
DUAL = [dual(p, m) for p in (4, 2, 6, 8, 16) for m in (3 * p, 2 * p, 2 * p + 2, 4 * p + 2)]
DUAL += [dual(8, 20), dual(2, 64)]
CUT = [cut(p, m) for p in (3, 1, 2, 4, 8) for m in (3 * p + 2, 2 * p, 2 * p + 1, 5 * p)]
CUT.append(cut(4, 20))


def row(name: str, points: float, demand: str, *values: object) -> Any:
    """A row of a table of checks: `values` after the scheduler's name."""
    mark = pytest.mark.check(task=f"a7.{name}", points=float(points), name=demand)
    return pytest.param(f"a7.{name}", *values, marks=mark, id=name)


# schedules -------------------------------------------------------------------------------------


VALID = "does everything once, where and when it can"
KEEPS = "keeps no more activations than the table says"
TAKES = "takes no longer than the published schedule"


@pytest.mark.parametrize(
    ("task", "sizes"),
    [row("dualpipe_schedule", 9, VALID, DUAL), row("dualpipev_schedule", 7, VALID, CUT)],
)
def test_schedule_is_valid(cluster: SimulatedCluster, task: str, sizes: list[Size]) -> None:
    ask(cluster, task, sizes)


@pytest.mark.parametrize(
    ("task", "sizes"),
    [row("dualpipe_schedule", 8, KEEPS, DUAL), row("dualpipev_schedule", 5, KEEPS, CUT)],
)
def test_schedule_keeps_few_activations(
    cluster: SimulatedCluster, task: str, sizes: list[Size]
) -> None:
    for size, plan in zip(sizes, ask(cluster, task, sizes), strict=True):
        expect_peaks(plan, [size.stages + 1] * size.ranks)


@pytest.mark.parametrize(
    ("task", "sizes"),
    [row("dualpipe_schedule", 15, TAKES, DUAL), row("dualpipev_schedule", 9, TAKES, CUT)],
)
def test_schedule_takes_no_longer(
    cluster: SimulatedCluster, metrics: dict[str, Any], task: str, sizes: list[Size]
) -> None:
    for size, plan in zip(sizes, ask(cluster, task, sizes), strict=True):
        # The V has one direction only: there both "directions" together are 2m passes.
        both = size.microbatches * (size.stages // size.ranks)
        half = size.microbatches // 2 if size.stages == size.ranks else size.microbatches
        for costs in COSTS:
            most = dualpipe_makespan(size.stages, both, costs)
            measured = expect_makespan(plan, costs, most, partial(why_slow, costs=costs, half=half))
            metrics[f"makespan, {plan.label}, {tuple(costs)}"] = measured.makespan


@check("a7.dualpipe_schedule", points=4, name="refuses odd ranks, odd or too few micro-batches")
def test_dualpipe_refuses(cluster: SimulatedCluster) -> None:
    cases = [((3, 12), (3,)), ((1, 4), (1,)), ((4, 9), (9,)), ((4, 6), (6, 8)), ((0, 2), (0,))]
    expect_refused(cluster, "a7.dualpipe_schedule", cases)


@check("a7.dualpipev_schedule", points=3, name="refuses too few micro-batches")
def test_dualpipev_refuses(cluster: SimulatedCluster) -> None:
    expect_refused(cluster, "a7.dualpipev_schedule", [((4, 7), (7, 8)), ((0, 2), (0,))])


# overlapped_forward_backward -------------------------------------------------------------------


OVERLAP = "a7.overlapped_forward_backward"
WIDTH = 1024
Phases = list[list[Any]]


def alternating(count: int, first: str, compute: int, communicate: int) -> Phases:
    """`count` phases of each kind in turn; rows of a product, rows of an exchange."""
    kinds = [["compute", compute], ["communicate", communicate]]
    order = kinds if first == "compute" else kinds[::-1]
    return [list(each) for _ in range(count) for each in order]


def run_passes(
    cluster: SimulatedCluster, forward: Phases, backward: Phases, label: str
) -> tuple[list[Any], Any]:
    """The diary of every rank (judged: order and completeness), and the trace."""
    given = {"width": WIDTH, "forward": forward, "backward": backward}
    outputs, trace = cluster.run("a7:overlap", [given] * 2, task=OVERLAP, allow=None, compute=True)
    for rank, diary in enumerate(outputs):
        for name, phases in (("forward", forward), ("backward", backward)):
            expected: list[list[Any]] = []
            for index, (kind, _) in enumerate(phases):
                expected.append([name, index, "run"])
                if kind == "communicate":
                    expected.append([name, index, "wait"])
            found = [entry for entry in diary if entry[0] == name]
            if found != expected:
                raise CheckFailed(
                    f"{label}, rank {rank}: {name} went {_diary_words(found)}, expected "
                    f"{_diary_words(expected)}",
                    cause="a phase runs only when the work of the phase before it has been "
                    "waited for; the last works are waited for, too",
                )
    return outputs, trace


def _diary_words(entries: list[list[Any]]) -> str:
    return " ".join(f"{what}{index}" for _, index, what in entries) or "nowhere"


@check(OVERLAP, points=6, name="runs every phase once, in order, and waits for every work")
def test_passes_run_in_order(cluster: SimulatedCluster) -> None:
    compute, communicate = ["compute", 8], ["communicate", 8]
    pairs: list[tuple[str, Phases, Phases]] = [
        ("two equal passes", alternating(3, "compute", 8, 8), alternating(3, "compute", 8, 8)),
        ("backward begins with communication",
         alternating(2, "compute", 8, 8), alternating(3, "communicate", 8, 8)),
        ("both begin with communication",
         alternating(2, "communicate", 8, 8), alternating(2, "communicate", 8, 8)),
        ("an empty backward", alternating(2, "compute", 8, 8), []),
        ("an empty forward", [], alternating(2, "compute", 8, 8)),
        ("two empty passes", [], []),
        ("only computation", [compute] * 3, [compute] * 2),
        ("only communication", [communicate] * 2, [communicate] * 3),
        ("phases of one kind in a row",
         [compute, compute, communicate, communicate, compute], [communicate, compute, compute]),
    ]  # fmt: skip
    for label, forward, backward in pairs:
        run_passes(cluster, forward, backward, label)


@check(OVERLAP, points=10, name="computes one pass while the other communicates")
@pytest.mark.parametrize("first", ["compute", "communicate"])
@pytest.mark.parametrize(("compute", "communicate"), [(1, 1), (2, 1), (1, 2)])
def test_passes_overlap(
    cluster: SimulatedCluster, metrics: dict[str, Any], first: str, compute: int, communicate: int
) -> None:
    count, rows = 14, 512
    forward = alternating(count, "compute", compute * rows, communicate * rows)
    backward = alternating(count, first, compute * rows, communicate * rows)
    label = f"phases of {compute} s and {communicate} s, the backward begins with {first}"
    _, trace = run_passes(cluster, forward, backward, label)
    # A product of 512 rows, and an exchange of 512 rows between two ranks, take one second each.
    machine = uniform(
        2,
        latency=0.0,
        bandwidth=rows * WIDTH * 4 / 2,
        flops=2.0 * rows * WIDTH * WIDTH,
        memory_bandwidth=1e30,
    )
    timed = trace.on(machine)
    ideal = 2.0 * count * max(compute, communicate)
    serial = 2.0 * count * (compute + communicate)
    metrics[f"makespan, {label}"] = timed.makespan
    if timed.makespan > 1.1 * ideal:
        raise CheckFailed(
            f"{label}: took {timed.makespan:.4g} s; all computation is {2 * count * compute}, all "
            f"communication {2 * count * communicate}, so at most {1.1 * ideal:.4g} was expected; "
            f"rank 0 computed while it communicated for {timed.overlap(0):.4g}",
            cause="nothing overlaps: each work is waited for before the other pass computes"
            if timed.makespan > 0.97 * serial
            else "a pass is computed while the other has nothing in flight",
        )


# run_dualpipe ----------------------------------------------------------------------------------


TASK = "a7.run_dualpipe"


@check(TASK, points=7, name="gives the loss and gradients of the unsplit model on both copies")
@pytest.mark.parametrize(
    ("ranks", "microbatches", "model"),
    [(2, 4, "block"), (4, 8, "perceptron"), (8, 16, "perceptron")],
)
def test_gradients_equal_the_unsplit_models(
    cluster: SimulatedCluster, rng: torch.Generator, ranks: int, microbatches: int, model: str
) -> None:
    batch = make_batch(rng, [model] * ranks, microbatches, rounds=1)
    home = both_ways(ranks, microbatches)
    label = f"{ranks} ranks both ways, {microbatches} micro-batches"
    plans = [
        greedy_plan(f"{label}, pairs", ranks, ranks, microbatches, home, pairs=True),
        greedy_plan(f"{label}, random", ranks, ranks, microbatches, home, seed=1, split=True),
    ]
    for plan in plans:
        outputs, _ = cluster.run(
            "a6:pipeline", rank_inputs(plan, batch, TASK), task=TASK, allow=None
        )
        judge_pipeline(outputs, batch, plan)
        for stage in range(ranks // 2):
            for name in batch.gradients[stage]:
                copies = [
                    outputs[r]["gradients"][str(stage)][name] for r in (stage, ranks - 1 - stage)
                ]
                assert_same_bits(
                    copies,
                    ranks=(stage, ranks - 1 - stage),
                    cause="the copies of a stage add their gradients in different orders",
                )


@check(TASK, points=3, name="runs the V, whose stages exist once")
def test_runs_the_v(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    batch = make_batch(rng, ["perceptron"] * 6, 6, rounds=2, uneven=True)
    plan = greedy_plan("3 ranks, a V", 3, 6, 6, folded(3), pairs=True)
    given = rank_inputs(plan, batch, TASK, rounds=2)
    outputs, _ = cluster.run("a6:pipeline", given, task=TASK, allow=None)
    judge_pipeline(outputs, batch, plan)


@check(TASK, points=4, name="accumulates over calls")
@pytest.mark.parametrize(("ranks", "world"), [(None, 4), ([3, 0, 4, 1], 5)])
def test_accumulates_over_calls(
    cluster: SimulatedCluster, rng: torch.Generator, ranks: list[int] | None, world: int
) -> None:
    names = ["perceptron", "partly frozen", "shared", "no parameters"]
    batch = make_batch(rng, names, 8, rounds=2, uneven=True)
    plan = greedy_plan("4 ranks both ways", 4, 4, 8, both_ways(4, 8), split=True)
    given = rank_inputs(plan, batch, TASK, rounds=2, ranks=ranks, world=world)
    outputs, _ = cluster.run("a6:pipeline", given, task=TASK, allow=None)
    judge_pipeline(outputs, batch, plan, ranks)


@check(TASK, points=4, name="takes the time of the schedule, and less where pairs can overlap")
@pytest.mark.parametrize("phased", [False, True])
def test_time(cluster: SimulatedCluster, metrics: dict[str, Any], phased: bool) -> None:
    if not phased:
        home = both_ways(4, 8)
        plan = greedy_plan("4 ranks both ways", 4, 4, 8, home, pairs=True)
        expect_time(cluster, metrics, plan, TASK)
        return
    ranks, count = 2, 8
    plan = greedy_plan("2 × 2 ranks", ranks, ranks, count, both_ways(ranks, count), pairs=True)
    alone = Plan(plan.label, [[(a,) for s in steps for a in s] for steps in plan.ranks])
    together, apart = _phased_makespan(cluster, plan), _phased_makespan(cluster, alone)
    metrics["makespan, pairs"], metrics["makespan, one by one"] = together[0], apart[0]
    metrics["overlap, pairs"], metrics["overlap, one by one"] = together[1], apart[1]
    if together[0] > 0.9 * apart[0]:
        raise CheckFailed(
            f"stages in phases: with {plan.pairs} overlapped pairs the run took "
            f"{together[0]:.4g} s, one by one {apart[0]:.4g} s; rank 0 computed while it "
            f"communicated for {together[1]:.4g} s and {apart[1]:.4g} s",
            cause="the halves of a pair run one after the other: overlapped_forward_backward is "
            "not used for stages that have phases",
        )


def _phased_makespan(cluster: SimulatedCluster, plan: Plan) -> tuple[float, float]:
    """(makespan, time in which rank 0 computes and communicates) where both cost alike."""
    rows, width = 512, 1024
    shared = {
        "schedule": [" ".join(map(step_text, steps)) for steps in plan.ranks],
        "rows": rows,
        "width": width,
        "parts": 4,
    }
    given = [shared | each for each in driver_stages(plan)]
    _, trace = cluster.run(
        "a7:phased_pipeline", [*given, *given], task=TASK, allow=None, compute=True
    )
    machine = uniform(
        2 * len(plan.ranks),
        latency=0.0,
        bandwidth=rows * width * 4 / 2,
        flops=2.0 * rows * width * width,
        memory_bandwidth=1e30,
    )
    timed = trace.on(machine)
    return timed.makespan, timed.overlap(0)


@check(TASK, points=6, name="keeps up with torch's own pipeline")
def test_throughput(throughput: Throughput) -> None:
    keeps_up(throughput, TASK)
