"""The checks of assignment 9 about what a plan costs: `memory_per_device` and `step_time`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from grader.checks import a9_memory as memory
from grader.checks import causes_a9 as causes
from grader.checks.a9_memory import model, plan, sized, words
from grader.checks.a9_published import MEGATRON, ZERO3, Row, gpt
from grader.checks.a9_steps import FREE, case, judge_links, judge_micro_batches, seconds, wide
from grader.checks.framework import CheckFailed, check
from grader.checks.world import SimulatedCluster as Cluster

Metrics = dict[str, Any]
Fields = dict[str, Any]

# memory_per_device ------------------------------------------------------------------------------

SEVEN_B = gpt(36, 4096, 32)
SMALL = model(layers=10, hidden=512, heads=8, vocab=1000, sequence=384)
LLAMA = model(
    layers=9, hidden=1024, heads=16, kv_heads=4, vocab=5000, sequence=512, ffn_hidden=3584,
    gated=True, tied=False, learned_positions=False, biases=False,
)  # fmt: skip
SPARSE = model(
    layers=8, hidden=256, heads=8, vocab=2000, sequence=128, ffn_hidden=1536, gated=True,
    tied=False, learned_positions=False, biases=False, experts=8, expert_hidden=384, top_k=2,
    shared_experts=1, dense_layers=2,
)  # fmt: skip


NAMES = {"optimizer": "optimizer states"}


def judge_memory(
    cluster: Cluster, cases: Sequence[tuple[Fields, Fields]], parts: Sequence[str]
) -> None:
    """These parts of each (model, plan), to the byte."""
    inputs = {"cases": [{"model": m, "plan": p} for m, p in cases]}
    answers = cluster.run("a9:memories", [inputs], task="a9.memory_per_device").outputs[0]
    told = [(m, p, {part: answer[part] for part in parts})
            for (m, p), answer in zip(cases, answers, strict=True)]  # fmt: skip
    for (m, p), answer in zip(cases, answers, strict=True):
        shape = f"{m['layers']} layers of {m['hidden']}"
        if "activations" in parts:
            shape += f", heads={m['heads']}, sequence={m['sequence']}"
        where = f"{shape}, {words(p, memory.PLAN) or 'one device'}"
        for part in parts:
            got, wanted = answer[part], memory.expected(m, p, part)
            if got is None:
                raise CheckFailed(
                    f"{where}: {part} of the {answer['type']} returned is no number, expected "
                    f"{sized(wanted)}"
                )
            if not memory.near(got, wanted):
                slip = memory.likely(m, p, part, got, causes.TWISTS, told)
                raise CheckFailed(
                    f"{where}: {NAMES.get(part, part)}: {sized(got)}, expected {sized(wanted)}",
                    cause=causes.TWISTS[slip] if slip else None,
                )
        total = sum(answer[part] for part in memory.STATES) + answer["activations"]
        if answer["total"] is None or not memory.near(answer["total"], total):
            raise CheckFailed(
                f"{where}: total is {answer['total']}, expected the sum of the parts, {total:.0f}"
            )


@check("a9.memory_per_device", 4, "counts weights, gradients and states by the stage of ZeRO")
def test_memory_zero(cluster: Cluster) -> None:
    cases = [(SEVEN_B, plan(dp=dp, zero=zero)) for zero in range(4) for dp in (1, 64)]
    cases += [(SMALL, plan(dp=2, cp=3, zero=zero)) for zero in (1, 2, 3)]
    cases += [(SMALL, plan(dp=4, pp=2, tp=2, zero=zero)) for zero in (1, 2, 3)]
    judge_memory(cluster, cases, memory.STATES)


@check("a9.memory_per_device", 3, "divides parameters by tp, stages, chunks and experts")
def test_memory_parameters(cluster: Cluster) -> None:
    cases = [
        (SMALL, plan(tp=4)),
        (SMALL, plan(pp=5)),
        (SMALL, plan(pp=4, micro_batches=8)),
        (SMALL, plan(pp=2, chunks=3, micro_batches=4)),
        (LLAMA, plan(tp=2)),
        (LLAMA, plan(tp=2, pp=3)),
        (SPARSE, plan(dp=4)),
        (SPARSE, plan(dp=4, ep=4)),
        (SPARSE, plan(dp=4, ep=2, zero=1)),
        (SPARSE, plan(dp=2, cp=2, tp=2, ep=2, zero=3)),
        (SPARSE, plan(pp=2, dp=8, ep=4, zero=2)),
        (SPARSE, plan(pp=4, dp=2, ep=2)),
    ]
    judge_memory(cluster, cases, memory.STATES)


@check(
    "a9.memory_per_device", 4, "counts the activations of a layer, with tp, sp, cp, recomputation"
)
def test_memory_activations(cluster: Cluster) -> None:
    cases = []
    for kind in ("none", "selective", "full"):
        for more in (
            {},
            {"micro_batch": 3},
            {"tp": 4},
            {"tp": 4, "sequence_parallel": True},
            {"cp": 2},
            {"cp": 2, "tp": 2, "sequence_parallel": True, "micro_batch": 2},
        ):
            cases.append((SMALL, plan(recomputation=kind, **more)))
    judge_memory(cluster, [*cases, (LLAMA, plan(tp=2)), (SEVEN_B, plan())], ["activations"])


@check("a9.memory_per_device", 3, "counts the micro-batches that a stage holds at once")
def test_memory_in_flight(cluster: Cluster) -> None:
    cases = [
        (SMALL, plan(micro_batches=6)),
        (SMALL, plan(pp=5, micro_batches=20)),
        (SMALL, plan(pp=5, micro_batches=3)),
        (SMALL, plan(pp=4, micro_batches=8, recomputation="full")),
        (SMALL, plan(pp=2, chunks=5, micro_batches=8)),
        (SMALL, plan(pp=5, chunks=2, micro_batches=5, recomputation="selective")),
    ]
    judge_memory(cluster, cases, ["activations"])


# step_time --------------------------------------------------------------------------------------


def judge_rows(cluster: Cluster, rows: Sequence[Row], allowed: float, metrics: Metrics) -> None:
    """Within `allowed` of what was published."""
    ratios = [
        got / row.seconds
        for row, got in zip(rows, seconds(cluster, [row.case for row in rows]), strict=True)
    ]
    worst = max(ratios, key=lambda ratio: abs(math.log(ratio)))
    metrics["worst_row"] = round(worst, 3)
    for row, ratio in zip(rows, ratios, strict=True):
        if not abs(1 / ratio - 1) <= allowed:
            rates = [rows_.tflops / r for rows_, r in zip(rows, ratios, strict=True)]
            even = max(rates) / min(rates) < 1.02
            raise CheckFailed(
                f"{row.name}: {row.seconds * ratio:.2f} s a step, {row.tflops / ratio:.0f} "
                f"TFLOP/s a GPU; published are {row.seconds:.2f} s, {row.tflops:g} TFLOP/s: the "
                f"rate may be {allowed:.0%} off",
                cause=causes.CONSTANT_MFU if even else causes.off_by(ratio),
            )
    _judge_neighbours(cluster, rows)


def _judge_neighbours(cluster: Cluster, rows: Sequence[Row]) -> None:
    """A few more layers, as many on every stage, and the rate stays nearly what it was."""
    cases = []
    near = [row for row in rows if 4 * row.plan["pp"] * row.plan["chunks"] <= row.model["layers"]]
    for row in near:
        more = row.model["layers"] + row.plan["pp"] * row.plan["chunks"]
        cases += [row.case, row.case | {"model": row.model | {"layers": more}}]
    found = seconds(cluster, cases)
    for number, row in enumerate(near):
        before, after = found[2 * number : 2 * number + 2]
        layers, more = row.model["layers"], cases[2 * number + 1]["model"]["layers"]
        # What does not grow with the layers, logits and optimizer, say, is a small part.
        if abs(after / before * layers / more - 1) > 0.1:
            raise CheckFailed(
                f"{row.name}: {before:.2f} s a step with {layers} layers, {after:.2f} s with "
                f"{more}; expected about {more / layers:.3f} × as long",
                cause="published times are looked up, or the constants are those of single runs",
            )


@check("a9.step_time", 4, "is within 15 % of eight published runs of Megatron")
def test_time_megatron(cluster: Cluster, metrics: Metrics) -> None:
    judge_rows(cluster, MEGATRON, 0.15, metrics)


@check("a9.step_time", 3, "is within 30 % of published runs with ZeRO-3")
def test_time_zero3(cluster: Cluster, metrics: Metrics) -> None:
    judge_rows(cluster, ZERO3, 0.30, metrics)


@check("a9.step_time", 1.5, "lets products slow down as shards get smaller")
def test_time_shards(cluster: Cluster) -> None:
    cases = []
    for hidden in (2048, 16384):
        for tp in (1, 8):
            cut = plan(tp=tp, sequence_parallel=tp > 1, micro_batch=2, micro_batches=8)
            cases.append(case(wide(hidden), cut, **FREE))
    found = seconds(cluster, cases)
    narrow, broad = 8 * found[1] / found[0], 8 * found[3] / found[2]
    message = (
        "on a network that costs nothing, tp = 8 takes, all devices together, "
        f"{narrow:.3f} × the time of one device with hidden 2048 (shards of 2048 / 8 = 256 "
        f"columns), {broad:.3f} × with hidden 16384 (2048 columns)"
    )
    if narrow < 1.03:
        raise CheckFailed(
            f"{message}; expected more than 1.03 × for the narrow shards",
            cause="the rate of products does not depend on the shard's size: a narrow shard must "
            "be slower",
        )
    if broad > narrow:
        raise CheckFailed(
            f"{message}; expected that the wider shards lose less",
            cause="the rate depends on tp itself, not on the shard's size",
        )
    if broad < 0.99:
        raise CheckFailed(f"{message}; expected that eight devices are not faster than eight times "
                          f"one")  # fmt: skip


@check("a9.step_time", 2, "has the bubble of the schedule")
def test_time_bubble(cluster: Cluster) -> None:
    p = 8
    m = wide(6144)
    runs = [(8, 1), (16, 1), (64, 1), (8, 2), (16, 2)]
    cases = [
        case(m, plan(pp=p, micro_batch=2, micro_batches=count, chunks=chunks), **FREE)
        for count, chunks in runs
    ]
    found = seconds(cluster, cases)
    for (count, chunks), got in zip(runs[1:], found[1:], strict=True):
        ratio, expected = got / found[0], (count + (p - 1) / chunks) / (8 + p - 1)
        if abs(ratio / expected - 1) > 0.04:
            bare = abs(ratio / (count / 8) - 1) <= 0.04
            plain = chunks > 1 and abs(ratio / ((count + p - 1) / (8 + p - 1)) - 1) <= 0.04
            raise CheckFailed(
                f"pp={p}, {count} micro-batches, chunks={chunks}: {ratio:.3f} × the time of 8 "
                f"micro-batches with chunks=1, expected {expected:.3f} ×: the time must be "
                f"proportional to m + (p − 1)/v",
                cause="chunks do not make the bubble smaller: it is (p − 1)/v micro-batches"
                if plain
                else "the bubble is left out"
                if bare
                else None,
            )


@check("a9.step_time", 0.5, "counts what is computed again")
def test_time_recomputation(cluster: Cluster) -> None:
    cases = [
        case(wide(6144), plan(micro_batch=4, micro_batches=8, recomputation=kind), **FREE)
        for kind in ("none", "full")
    ]
    none, full = seconds(cluster, cases)
    if not 1.2 <= full / none <= 1.45:
        raise CheckFailed(
            f"recomputation full takes {full / none:.3f} × the time of none, expected about 4/3: "
            f"one more forward",
            cause="recomputation does not change the time" if full == none else None,
        )


@check("a9.step_time", 2, "charges the traffic of every dimension to the link it crosses")
def test_time_traffic(cluster: Cluster) -> None:
    judge_links(cluster)
    judge_micro_batches(cluster)


@check("a9.step_time", 1, "hides traffic behind computation, but not more than there is")
def test_time_overlap(cluster: Cluster) -> None:
    m, cut = wide(6144, 8), plan(dp=8, micro_batch=4)
    free = FREE | {"devices_per_node": 1, "nodes": 8}
    base = seconds(cluster, [case(m, cut, **free)])[0]
    rates = [1e8, 1e7]  # so slow that nothing else matters: bytes that are sent follow
    slow = seconds(cluster, [case(m, cut, **free | {"inter_bandwidth": rate}) for rate in rates])
    volume = (slow[1] - slow[0]) / (1 / rates[1] - 1 / rates[0])
    if volume <= 0:
        raise CheckFailed("dp 8: a slower network costs nothing", cause="dp's traffic is left out")
    # Bandwidths with which the traffic alone takes a tenth of the computation, or thrice as long.
    some, much = seconds(
        cluster,
        [
            case(m, cut, **free | {"inter_bandwidth": volume / (share * base)})
            for share in (0.1, 3.0)
        ],
    )
    shown = (some - base) / (0.1 * base)
    if shown > 0.97:
        raise CheckFailed(
            f"dp 8: traffic that takes a tenth of the computation's time lengthens the step by "
            f"{shown:.0%} of the traffic's time, expected less: some of it hides behind backward",
            cause="all times are added up, nothing overlaps",
        )
    if shown < -0.001 or much < 0.99 * 3 * base:
        raise CheckFailed(
            f"dp 8: the step takes {much:.3f} s on a network on which its traffic alone takes "
            f"{3 * base:.3f} s",
            cause="more traffic is hidden than there is computation to hide it",
        )
