"""The checks of assignment 9's training half: the harness and the capstone."""

from __future__ import annotations

import statistics
from typing import Any

import pytest
import torch

from grader.checks import a9_harness as harness
from grader.checks.a9_train_faults import (
    NORM_OVER,
    PART_OF_NORM,
    UNCLIPPED,
    is_near,
    norm_faults,
)
from grader.checks.a9_train_model import Fault, Layout, curve
from grader.checks.a9_train_runs import (
    TASK,
    Metrics,
    configured,
    given,
    held_instead,
    judge_curve,
    layer_bytes,
    random_text,
    run,
    sent_by_step,
    step_bytes,
    step_flops,
)
from grader.checks.framework import CheckFailed, check
from grader.checks.real_world import RealWorld
from grader.checks.world import SimulatedCluster

INITIALIZE, SHUTDOWN = "a9.initialize", "a9.shutdown"
STEPS = 20
EXACT, SINGLE = 1e-9, 1e-5  # of float64, of float32: relative to the loss


# initialize ------------------------------------------------------------------------------------


@check(INITIALIZE, points=2, name="joins the job that the environment describes")
@pytest.mark.parametrize(("ranks", "per_node"), [(1, 1), (3, 3), (4, 2)])
def test_initialize_joins(cluster: SimulatedCluster, ranks: int, per_node: int) -> None:
    harness.joins(cluster, ranks, per_node)


@check(INITIALIZE, points=1, name="takes its share of the cores, and its own device")
def test_initialize_binds(cluster: SimulatedCluster) -> None:
    for ranks, per_node, cores in ((4, 4, 16), (4, 2, 7), (3, 3, 2), (1, 1, 5)):
        harness.binds_cores(cluster, ranks, per_node, cores)
    harness.binds_devices(cluster, 4, 2)


@check(INITIALIZE, points=2, name="seeds every rank, each differently")
def test_initialize_seeds(cluster: SimulatedCluster) -> None:
    harness.seeds(cluster, 3)


@check(INITIALIZE, points=1, name="refuses an environment that describes no job")
def test_initialize_refuses(cluster: SimulatedCluster) -> None:
    harness.refuses(cluster)


# shutdown --------------------------------------------------------------------------------------


@check(SHUTDOWN, points=3, name="leaves the process as it was found")
@pytest.mark.parametrize("ranks", [1, 3])
def test_shutdown_leaves_nothing(cluster: SimulatedCluster, ranks: int) -> None:
    harness.leaves_nothing(cluster, ranks)


@check(SHUTDOWN, points=1, name="leaves a group that was there before")
def test_shutdown_leaves_what_was_there(cluster: SimulatedCluster) -> None:
    harness.leaves_what_was_there(cluster, 2)


@check(SHUTDOWN, points=2, name="waits for nobody after an error")
def test_shutdown_after_an_error(cluster: SimulatedCluster) -> None:
    harness.ends_after_an_error(cluster, 3)


# train -----------------------------------------------------------------------------------------

#: What a run may lack that goes on from a checkpoint.
FORGOTTEN = {
    "optimizer": "the optimizer's states are not restored",
    "count": "the optimizer's count of steps is not restored",
    "weights": "the parameters are not restored",
    "data": "the batches start from the first one again",
}
MIXED_UP = (
    "what one layout has saved is read wrongly by another: shards or layers get numbers that are "
    "not theirs"
)
LAYOUTS = [
    Layout(),
    Layout(dp=2),
    Layout(pp=2),
    Layout(tp=2),
    Layout(dp=2, pp=2, tp=2, sp=True),
]
EXPERTS = [
    (Layout(), STEPS),
    (Layout(dp=2, ep=2), STEPS),
    (Layout(dp=4, ep=4), STEPS),
    (Layout(dp=4, ep=2), 5),
    (Layout(dp=2, tp=2, ep=2), 5),
]


@check(TASK, points=6, name="trains as one device does")
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_trains_as_one_device(
    cluster: SimulatedCluster, rng: torch.Generator, metrics: Metrics, layout: Layout
) -> None:
    config, text = configured(rng, steps=STEPS), random_text(rng)
    answers, _ = run(cluster, metrics, given(config, text, layout))
    judge_curve(answers, layout, config, text, EXACT)
    metrics["last_loss"] = answers[0]["losses"][-1]


@check(TASK, points=4, name="trains experts as one device does")
@pytest.mark.parametrize(("layout", "steps"), EXPERTS, ids=str)
def test_trains_experts(
    cluster: SimulatedCluster, rng: torch.Generator, metrics: Metrics, layout: Layout, steps: int
) -> None:
    config, text = configured(rng, steps=steps, experts=4), random_text(rng)
    answers, _ = run(cluster, metrics, given(config, text, layout))
    judge_curve(answers, layout, config, text, EXACT)


@check(TASK, points=2, name="clips by the norm of the whole model's gradient")
@pytest.mark.parametrize(
    ("layout", "experts"),
    [(Layout(dp=2, pp=2, tp=2), 0), (Layout(tp=2, sp=True), 0), (Layout(dp=2, ep=2), 2)],
)  # fmt: skip
def test_clips_by_the_whole_norm(
    cluster: SimulatedCluster, rng: torch.Generator, metrics: Metrics, layout: Layout, experts: int
) -> None:
    config, text = configured(rng, steps=6, experts=experts), random_text(rng)
    # Between the norms, so that some steps are clipped and others not.
    config["max_norm"] = statistics.median(curve(config, text)[1]) * 0.99
    answers, _ = run(cluster, metrics, given(config, text, layout))
    faults = norm_faults(layout, config)
    try:
        judge_curve(answers, layout, config, text, EXACT, faults=faults, cause=WRONG_NORM)
    except CheckFailed as failure:
        if failure.cause in (WRONG_NORM, UNCLIPPED):
            unclipped = failure.cause == UNCLIPPED
            failure.cause = _why_norm(cluster, layout, config, text, unclipped)
        raise


WRONG_NORM = (
    "the norm is not that of the whole model: squares must be summed over tp, pp and ep, and what "
    "several ranks hold alike must count once"
)


def _why_norm(
    cluster: SimulatedCluster,
    layout: Layout,
    config: dict[str, Any],
    text: torch.Tensor,
    unclipped: bool,
) -> str:
    """What other runs tell: of a smaller max_norm, and of each dimension alone."""
    if unclipped:
        _, norms = curve(config, text, Fault("", clip=False))
        some = config | {"max_norm": 0.05 * min(norms)}
        answers, _ = run(cluster, {}, given(some, text, layout))
        losses = answers[0]["losses"] or []
        for fault in norm_faults(layout, config):
            pairs = zip(losses, curve(some, text, fault)[0], strict=False)
            if losses and all(is_near(a, b, EXACT / 100) for a, b in pairs):
                return fault.cause
        return PART_OF_NORM
    alone = {
        "dp": Layout(dp=layout.dp),
        "tp": Layout(tp=layout.tp, sp=layout.sp),
        "pp": Layout(pp=layout.pp),
        "ep": Layout(dp=layout.dp, ep=layout.ep),
    }
    for name, one in alone.items():
        if getattr(layout, name) == 1:
            continue
        answers, _ = run(cluster, {}, given(config, text, one))
        try:
            judge_curve(answers, one, config, text, EXACT, cause=WRONG_NORM)
        except CheckFailed:
            return f"the norm is wrong as soon as {name} is above 1: {NORM_OVER[name]}"
    return WRONG_NORM


@check(TASK, points=3, name="keeps its own share of the model only")
@pytest.mark.parametrize(
    ("layout", "experts"),
    [
        (Layout(tp=2), 0),
        (Layout(pp=2), 0),
        (Layout(pp=2, tp=2, sp=True), 0),
        (Layout(dp=2, ep=2), 4),
    ],
)
def test_keeps_its_share(
    cluster: SimulatedCluster, rng: torch.Generator, metrics: Metrics, layout: Layout, experts: int
) -> None:
    config, text = configured(rng, steps=2, experts=experts), random_text(rng)
    answers, _ = run(cluster, metrics, given(config, text, layout))
    needed = layer_bytes(config, layout)
    whole = sum(needed)
    largest = [a["parameters"] for a in answers]
    metrics["parameter_bytes"] = largest
    for rank, answer in enumerate(answers):
        if not answer["steps"]:
            raise CheckFailed(
                f"{layout}, rank {rank}: no optimizer of torch.optim has made a step",
                cause="parameters must be updated by torch.optim.AdamW",
            )
        # Stages may be cut as one likes, but none is all of it.
        most = whole if layout.pp == 1 else whole - min(needed)
        for what, found, allowed in (
            ("parameters", answer["parameters"], most),
            ("optimizer states", answer["states"], 2 * most),
        ):
            if found > 1.02 * allowed:
                raise CheckFailed(
                    f"{layout}, rank {rank} holds {found} bytes of {what}, expected at most "
                    f"{allowed}",
                    cause=_why_so_much(layout),
                    metrics={"parameter_bytes": largest},
                )
    total, replicas = sum(largest), layout.dp * layout.tp
    if layout.pp > 1 and total > 1.02 * replicas * whole:
        raise CheckFailed(
            f"{layout}: all ranks together hold {total} bytes of parameters, expected "
            f"{replicas * whole}",
            cause="layers are on several stages at once",
        )


def _why_so_much(layout: Layout) -> str:
    if layout.ep > 1:
        return "every rank holds all experts: it must hold those of its place in ep only"
    if layout.pp == 1:
        return "every tp rank holds the whole model: it must hold its shards only"
    if layout.tp == 1:
        return "every stage holds the whole model: it must hold its own layers only"
    return (
        "every rank holds whole layers, or the layers of all stages: it must hold its shards of "
        "its own layers only"
    )


@check(TASK, points=2, name="computes its share, and sends no more than its layout must")
@pytest.mark.parametrize("layout", [Layout(dp=2), Layout(tp=2), Layout(pp=2)], ids=str)
def test_sends_no_more_than_it_must(
    cluster: SimulatedCluster, rng: torch.Generator, metrics: Metrics, layout: Layout
) -> None:
    config, text = configured(rng, steps=1), random_text(rng)
    runs: list[list[dict[str, Any]]] = []
    traces = []
    for steps in (1, 2):
        inputs = given(config | {"steps": steps}, text, layout, counts=True)
        answers, trace = run(cluster, metrics, inputs)
        assert trace is not None
        runs.append(answers)
        traces.append(trace)
    _computes_its_share(layout, config, runs, metrics)
    sent = sent_by_step((traces[0], traces[1]), 1)
    ((name, must),) = step_bytes(config, layout, bool(answers[0]["fallbacks"])).items()
    metrics["bytes_per_step"], metrics["expected_bytes"] = max(sent), must
    rank = sent.index(max(sent))
    if sent[rank] > 1.25 * must + 512:
        raise CheckFailed(
            f"{layout}: rank {rank} sends {sent[rank]:.0f} bytes in a step, expected about "
            f"{must:.0f}",
            cause={
                "dp": "gradients are averaged after every micro-batch, or parameters are sent, too",
                "tp": "weights or logits are gathered, or activations are reduced more often than "
                "twice in a block",
                "pp": "more than the activations and their gradients goes from stage to stage",
            }[name],
        )
    if sum(sent) < 0.5 * must * layout.ranks:
        # Work is shared out, or the FLOPs would have told.
        raise CheckFailed(
            f"{layout}: the ranks share the work, but send {sum(sent):.0f} bytes in a step, "
            f"expected about {must * layout.ranks:.0f}",
            cause={
                "dp": "gradients are not exchanged: every dp replica trains a model of its own, on "
                "its own sequences",
                "tp": "the results of the shards are not exchanged: every tp rank goes on with its "
                "own part of a sum",
                "pp": "activations and gradients are not exchanged: every stage works by itself",
            }[name],
        )


def _computes_its_share(
    layout: Layout, config: dict[str, Any], runs: list[list[dict[str, Any]]], metrics: Metrics
) -> None:
    """All ranks together compute what one device does, or that and one more forward."""
    short, long = (sum(answer["flops"] for answer in answers) for answers in runs)
    whole = step_flops(config)
    metrics["flops_per_step"], metrics["expected_flops"] = long - short, whole
    if long - short > 1.5 * whole:
        each, ranks = (long - short) / whole / layout.ranks, layout.ranks
        shared = {
            "dp": "every dp replica computes the whole batch: it must compute its share of the "
            "sequences only",
            "tp": "every tp rank computes the whole model: it must compute its shards only",
            "pp": "every stage computes the whole model: it must compute its own layers only",
        }
        (name,) = (name for name in shared if getattr(layout, name) > 1)
        raise CheckFailed(
            f"{layout}: a rank's matrix products are {each:.0%} of those of one device alone "
            f"({each * whole:.3g} of {whole:.3g} FLOPs in a step), expected about {1 / ranks:.0%}, "
            f"at most {4 / 3 / ranks:.0%} with a forward computed again",
            cause="every rank computes, beside its own share, what one device would: the work must "
            "be done once"
            if each > 1 + 0.5 / ranks
            else shared[name],
        )


@check(TASK, points=4, name="goes on from a checkpoint at another layout")
@pytest.mark.parametrize(
    ("layouts", "experts"),
    [
        ([Layout(dp=2, pp=2, tp=2, sp=True), Layout(tp=2), Layout()], 0),
        ([Layout(dp=2, ep=2), Layout(), Layout(dp=2, pp=2)], 2),
    ],
    ids=["dense", "experts"],
)
def test_goes_on_at_another_layout(
    cluster: SimulatedCluster,
    rng: torch.Generator,
    metrics: Metrics,
    layouts: list[Layout],
    experts: int,
) -> None:
    config, text = configured(rng, steps=12, experts=experts), random_text(rng)
    files: dict[str, torch.Tensor] = {}
    begin, wrote = 0, ""
    for layout, end in zip(layouts, (4, 7, 12), strict=True):
        part = config | {"steps": end}
        inputs = given(part | {"resume": begin > 0}, text, layout, checkpoint=True, files=files)
        try:
            answers, _ = run(cluster, metrics, inputs)
        except CheckFailed as failure:
            held_instead(failure, files, f"{layout} reads what {wrote} has saved")
            raise
        files = answers[0]["files"]
        if not files:
            raise CheckFailed(
                f"{layout}: the folder named by checkpoint is empty after {end} steps",
                cause="nothing is saved at the end: a run must be saved there, too",
            )
        losses = answers[0]["losses"]
        if begin and losses is not None and len(losses) == end:
            raise CheckFailed(
                f"{layout}, resumed after step {begin}: got {end} losses, expected {end - begin}",
                cause="the run starts from the beginning: the checkpoint is not read",
            )
        judge_curve(
            answers, layout, part, text, EXACT,
            first=begin,
            faults=[Fault(why, restart=begin, forgets=what) for what, why in FORGOTTEN.items()]
            if begin else (),
            cause=MIXED_UP if begin else None,
        )  # fmt: skip
        begin, wrote = end, str(layout)


@check(TASK, points=3, name="trains on real processes, too")
@pytest.mark.parametrize(
    ("layout", "steps"), [(Layout(dp=2, tp=2), 5), (Layout(pp=2, tp=2, sp=True), STEPS)], ids=str
)
def test_trains_on_real_processes(
    real_world: RealWorld, rng: torch.Generator, metrics: Metrics, layout: Layout, steps: int
) -> None:
    config, text = configured(rng, steps=steps, dtype="float32", device="auto"), random_text(rng)
    answers, _ = run(real_world, metrics, given(config, text, layout))
    judge_curve(answers, layout, config, text, SINGLE)
