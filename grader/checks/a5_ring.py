"""Checks of ring attention: values to 1e-10, bytes, memory, work, virtual time."""

from __future__ import annotations

import math
from typing import Any

import torch

from grader.checks import a4_volume as volume
from grader.checks.a4_cases import GROUP, GROUP_WORLD, PAIR
from grader.checks.a4_judges import judge_refusal
from grader.checks.a5_cases import CallCase, attention, run
from grader.checks.a5_judges import block_pairs, flops, judge_attention
from grader.checks.framework import CheckFailed
from grader.checks.world import SimulatedCluster
from grader.fabric.cluster import uniform

RING = "a5.ring_attention"


def judged(rng: torch.Generator, world: int, *ranks: Any, **more: Any) -> CallCase:
    """A case with a judge."""
    case = attention(rng, world, *ranks, **more)
    case.judge = judge_attention
    return case


def values(
    cluster: SimulatedCluster, rng: torch.Generator, causal: bool, layout: str | None = None
) -> None:
    """1 to 8 ranks, from two tokens on each; with grouped-query heads."""
    for world in (1, 2, 3, 4, 5, 6, 7, 8) if layout == "zigzag" else (1, 2, 3, 8):
        kinds = [(2, 2), (6, 3), (2, 1)] if world < 4 else [(2, 2)]
        cases = [
            judged(rng, world, causal=causal, layout=each, length=length, grouped=grouped)
            for each in ([layout] if layout else ["zigzag", "contiguous"])
            for length, grouped in kinds
        ]
        if layout == "contiguous":
            cases.append(judged(rng, world, causal=causal, layout=layout, length=3))
        run(cluster, RING, cases, schedules=2 if world == 3 else 1)


def groups(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    """Sub-groups whose ranks are permuted."""
    run(
        cluster,
        RING,
        [
            judged(rng, GROUP_WORLD, ranks, causal=True, layout=layout, grouped=2)
            for ranks in (GROUP, PAIR)
            for layout in ("zigzag", "contiguous")
        ],
    )


def sent(cluster: SimulatedCluster, rng: torch.Generator, metrics: dict[str, Any]) -> None:
    """Forward at most n − 1, backward at most 2n − 1 times the local bytes of k and v."""
    world = 4
    for causal, layout in ((True, "zigzag"), (True, "contiguous"), (False, "zigzag")):
        case = attention(rng, world, causal=causal, layout=layout, length=4, grouped=2)
        outcome = run(cluster, RING, [case])
        block = sum(t.numel() * t.element_size() for t in case.tensors[0][1:])
        for rank, (answer,) in enumerate(outcome.outputs):
            phases = volume.phases(outcome.trace, rank, answer["marks"])
            for name, operations, times in zip(
                ("forward", "backward"), phases, (world - 1, 2 * world - 1), strict=True
            ):
                nbytes = volume.expect_phase(
                    operations, world, times * block, f"{case.label}: rank {rank}, {name}",
                    f"{times} times the rank's own keys and values",
                    "keys and values are repeated for every query head before they are sent: send "
                    "them as they are" if any(op.nbytes >= 2 * block for op in operations) else
                    "blocks go round once too often, or something else travels with them",
                )  # fmt: skip
                metrics[f"{name}_bytes"] = nbytes
        judge_attention(case, [answers[0] for answers in outcome.outputs])


def memory(cluster: SimulatedCluster, rng: torch.Generator, metrics: dict[str, Any]) -> None:
    """The same peak on 2 and on 6 ranks, and nothing kept but one's own."""
    peaks: dict[int, dict[str, int]] = {}
    for world in (2, 6):
        case = attention(
            rng, world, causal=False, layout="contiguous", length=8, head_dim=64, batch=1
        )
        inputs = [{"task": RING, "case": case.of_rank(rank)} for rank in range(world)]
        outcome = cluster.run("a5:ring_memory", inputs, task=RING, allow=None)
        peaks[world] = {
            name: max(figures[name] for figures in outcome.outputs) for name in outcome.outputs[0]
        }
    q, k, v = case.tensors[0]
    block = (k.numel() + v.numel()) * 8
    allowed = (q.numel() + k.numel() + v.numel() + 2 * q.numel() // q.shape[-1]) * 8
    for name in ("forward", "backward"):
        grown = peaks[6][name] - peaks[2][name]
        metrics[f"{name}_peak_growth_in_blocks"] = round(grown / block, 2)
        if grown > 1.5 * block:
            raise CheckFailed(
                f"{name}: the peak is {peaks[2][name]} bytes on 2 ranks and {peaks[6][name]} on 6, "
                f"with as many tokens on each: {grown / block:.1f} blocks of keys and values more, "
                f"expected none",
                cause="blocks of other ranks pile up: all are gathered, or kept until the end",
            )
    saved = peaks[6]["saved"]
    metrics["saved_bytes"] = saved
    if saved > 1.1 * allowed:
        raise CheckFailed(
            f"6 ranks: {saved} bytes besides q, k, v and the result are kept for backward, "
            f"expected at most {1.1 * allowed:.0f}",
            cause="blocks of other ranks, or scores, are kept: autograd does so for every product "
            "outside an autograd.Function",
        )
    run(cluster, RING, [judged(rng, 3, causal=False, layout="contiguous", length=3)])


def work(cluster: SimulatedCluster, rng: torch.Generator, metrics: dict[str, Any]) -> None:
    """FLOPs: no more than the visible blocks have, and equal shares in zigzag."""
    world, length = 4, 32
    for layout in ("zigzag", "contiguous"):
        case = attention(rng, world, causal=True, layout=layout, length=length, head_dim=64)
        outcome = run(cluster, RING, [case], compute=True)
        q = case.tensors[0][0]
        pair = 4 * q.shape[0] * q.shape[1] * q.shape[-1]
        pairs = block_pairs(world, length, True, layout)
        for name, at, products in (("forward", 0, 1.0), ("backward", 1, 2.5)):
            found = [
                flops(outcome.trace, rank, *answer["marks"][at : at + 2])
                for rank, (answer,) in enumerate(outcome.outputs)
            ]
            total, most = sum(found), products * sum(pairs) * pair
            where = f"{case.label}, {name}"
            metrics[f"{name}_{layout}_flops_of_blocks"] = round(total / most, 3)
            if total > 1.4 * most:
                raise CheckFailed(
                    f"{where}: {total} FLOPs on all ranks, by rank {found}; the blocks that are "
                    f"not hidden take {most:.0f}, expected at most 1.4 times that",
                    cause="scores that the mask hides are computed: whole blocks, or half of one",
                )
            if total < 0.4 * most:
                raise CheckFailed(
                    f"{where}: {total} FLOPs on all ranks, expected about {most:.0f}",
                    cause="work is done where it is not counted",
                )
            if layout != "zigzag":
                continue
            share = max(found) / (total / world)
            metrics[f"{name}_largest_share_over_mean"] = round(share, 4)
            if share > 1.05:
                raise CheckFailed(
                    f"{where}: FLOPs by rank {found}: the largest is {share:.2f} times the mean, "
                    f"expected at most 1.05",
                    cause="work is not cut by chunks: see which chunks of a zigzag share are seen",
                )


def overlap(cluster: SimulatedCluster, rng: torch.Generator, metrics: dict[str, Any]) -> None:
    """Where a block travels in 0.8 of the time its attention takes, it costs next to nothing."""
    world, length = 4, 16
    for causal, layout in ((False, "contiguous"), (True, "zigzag")):
        for gradient, most in ((False, 1.15), (True, 1.25)):
            case = attention(
                rng, world, causal=causal, layout=layout, length=length, head_dim=64,
                gradient=gradient,
            )  # fmt: skip
            outcome = run(cluster, RING, [case], compute=True)
            q, k, v = case.tensors[0]
            block = (k.numel() + v.numel()) * 8
            least = 4 * q.shape[0] * q.shape[1] * q.shape[-1] * length * length // (1 + causal)
            free, real = (
                outcome.trace.on(
                    uniform(world, 0.0, bandwidth, flops=float(least), memory_bandwidth=math.inf)
                ).makespan
                for bandwidth in (1e30, block / 0.8)
            )
            name = "forward and backward" if gradient else "forward"
            metrics[f"{name}, {layout}: time over computation"] = round(real / free, 3)
            if real > most * free:
                raise CheckFailed(
                    f"{case.label}, {name}: {real:.2f} s where a block travels for 0.8 s and the "
                    f"smallest is attended to in 1 s; {free:.2f} s where it takes no time: "
                    f"{real / free:.2f} times as long, expected at most {most}",
                    cause="the next block's exchange is posted only when the block is needed: "
                    "post it first, attend, then wait",
                )
            judge_attention(case, [answers[0] for answers in outcome.outputs])


def refuses(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    """Layouts, heads, and an odd number of tokens for zigzag."""
    cases = [
        attention(rng, 2, causal=True, layout="zigzag", gradient=False),
        attention(rng, 2, causal=True, layout="zigzag", heads=2, grouped=2, gradient=False),
        attention(rng, 2, causal=True, layout="contiguous", length=3, gradient=False),
    ]
    cases[0].more = (True, "diagonal")
    cases[1].tensors = [[q[:, :3], k, v] for q, k, v in cases[1].tensors]
    cases[2].more = (True, "zigzag")
    labels = ('layout="diagonal"', "3 query heads to 2 key-value heads", "3 tokens, zigzag")
    numbers: tuple[tuple[object, ...], ...] = (("layout", "diagonal"), (3, 2), (3,))
    for case, label in zip(cases, labels, strict=True):
        case.refused, case.label = True, label
    outcome = run(cluster, RING, cases)
    for at, (case, words) in enumerate(zip(cases, numbers, strict=True)):
        for rank, answers in enumerate(outcome.outputs):
            judge_refusal(answers[at].get("error"), words, f"{case.label}: rank {rank}")
