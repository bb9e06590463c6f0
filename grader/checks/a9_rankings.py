"""Which plans fit, by the rules of the handout, and how a student's `plan` is asked about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from grader.checks import a9_memory as memory
from grader.checks import causes_a9 as causes
from grader.checks.a9_memory import model, plan
from grader.checks.a9_published import A100, gpt
from grader.checks.framework import CheckFailed, SolutionError, SolutionTimeout
from grader.checks.world import SimulatedCluster as Cluster

Fields = dict[str, Any]
GB = 1e9

GPT3 = gpt(96, 12288, 96)
SEVEN_B = gpt(36, 4096, 32)
GROUPED = model(
    layers=12, hidden=2048, heads=32, kv_heads=4, vocab=32000, sequence=1024, ffn_hidden=5632,
    gated=True, tied=False, learned_positions=False, biases=False,
)  # fmt: skip
SPARSE = model(
    layers=12, hidden=1024, heads=16, vocab=32000, sequence=1024, gated=True, tied=False,
    learned_positions=False, biases=False, experts=8, expert_hidden=1024, top_k=2,
)  # fmt: skip


def a100(devices: int) -> Fields:
    """DGX A100s: whole nodes, or part of one."""
    per_node = min(8, devices)
    return A100 | {"nodes": -(-devices // per_node), "devices_per_node": per_node}


def devices_of(cluster: Fields) -> int:
    """Of all nodes."""
    return int(cluster["nodes"] * cluster["devices_per_node"])


def usable(cluster: Fields) -> float:
    """Bytes that a plan may fill."""
    return 0.9 * float(cluster["memory"])


def kind_of(m: Fields, p: Fields, cluster: Fields, batch: int) -> str | None:
    """Why a plan must be refused; None if it fits."""
    replicas = p["dp"] * p["cp"]
    if replicas * p["pp"] * p["tp"] != devices_of(cluster):
        return "product"
    if undivided(m, p):
        return "division"
    if p["dp"] * p["micro_batch"] * p["micro_batches"] != batch:
        return "batch"
    return "memory" if total(m, p) > usable(cluster) else None


def undivided(m: Fields, p: Fields) -> list[str]:
    """What of a plan cannot be divided, in words."""
    found = [
        f"{whole} {what} cannot be divided by {name}={p[name]}"
        for whole, what, name in (
            (m["heads"], "heads", "tp"),
            (m["kv_heads"] or m["heads"], "key/value heads", "tp"),
            (m["ffn_hidden"] or 4 * m["hidden"], "columns of the MLP", "tp"),
            (m["expert_hidden"], "columns of an expert", "tp"),
            (m["sequence"], "tokens", "cp"),
            (m["sequence"] // p["cp"] if p["sequence_parallel"] else 0, "tokens", "tp"),
            (p["dp"] * p["cp"], "ranks of dp × cp", "ep"),
            (m["experts"] or 1, "experts", "ep"),
        )
        if whole % p[name]
    ]
    pp, chunks, count = p["pp"], p["chunks"], p["micro_batches"]
    if pp * chunks > m["layers"]:
        found.append(f"{m['layers']} layers are too few for pp={pp} × chunks={chunks}")
    if chunks > 1 and pp == 1:
        found.append(f"chunks={chunks} need a pipeline, and pp is 1")
    elif chunks > 1 and count % pp:
        found.append(f"chunks={chunks} need micro_batches that pp={pp} divides, not {count}")
    return found


def total(m: Fields, p: Fields) -> float:
    """Bytes of a device."""
    return sum(memory.states(m, p).values()) + memory.activations(m, p)


def layouts(m: Fields, devices: int) -> Iterator[tuple[int, ...]]:
    """All (dp, pp, tp, cp, ep) with the right product."""
    divisors = [n for n in range(1, devices + 1) if devices % n == 0]
    for tp, pp, cp in product(divisors, repeat=3):
        dp, rest = divmod(devices, tp * pp * cp)
        if rest or not dp:
            continue
        for ep in [n for n in divisors if (dp * cp) % n == 0] if m["experts"] else [1]:
            yield dp, pp, tp, cp, ep


def brute_force(m: Fields, cluster: Fields, batch: int) -> list[Fields]:
    """Plans that may be, with many schedules and savings; none near the limit of memory."""
    found = []
    for dp, pp, tp, cp, ep in layouts(m, devices_of(cluster)):
        each, rest = divmod(batch, dp)
        if rest or not each:
            continue
        for size, chunks, zero, kind in product(
            (1, 2, 4), (1, 2, 3), (0, 1, 3), ("none", "selective", "full")
        ):
            if each % size or (zero and dp * cp == 1):
                continue
            cut = plan(
                dp=dp, pp=pp, tp=tp, cp=cp, ep=ep, sequence_parallel=tp > 1, micro_batch=size,
                micro_batches=each // size, chunks=chunks, zero=zero, recomputation=kind,
            )  # fmt: skip
            fits = kind_of(m, cut, cluster, batch) is None
            if fits and m["layers"] % (pp * chunks) == 0 and total(m, cut) < 0.97 * usable(cluster):
                found.append(cut)
    return found


def rank(cluster: Cluster, cases: Sequence[Fields], **options: Any) -> list[dict[str, Any]]:
    """What `plan` answered to each case; what it raised, or a wrong form, fails the check."""
    options = {"time_limit": 60.0, "wall_seconds": 90.0} | options
    inputs = {"cases": list(cases)}
    try:
        answers = cluster.run("a9:rankings", [inputs], task="a9.plan", **options).outputs[0]
    except SolutionTimeout as failure:
        failure.cause = causes.TOO_SLOW
        raise
    for answer in answers:
        if "error" in answer:
            error = answer["error"]
            raise SolutionError(f"{error['type']}: {error['message']} (at {error['where']})")
        if "malformed" in answer:
            raise CheckFailed(
                f"expected a Ranking(best, refused) of Ranked and Refused: {answer['malformed']}"
            )
    return list(answers)


def needs(m: Fields, p: Fields, cluster: Fields) -> str:
    """The memory of a device, in words."""
    return f"it needs {total(m, p) / GB:,.1f} GB, usable are {usable(cluster) / GB:.1f} GB"


def own_total(cluster: Cluster, m: Fields, p: Fields) -> float | None:
    """Bytes of a device by the student's own `memory_per_device`."""
    inputs = {"cases": [{"model": m, "plan": p}]}
    answer = cluster.run("a9:memories", [inputs], task="a9.plan").outputs[0][0]
    return None if answer["total"] is None else float(answer["total"])


def in_words(p: Mapping[str, Any]) -> str:
    """A plan in words."""
    return ", ".join(f"{key}={value}" for key, value in p.items() if value != memory.PLAN[key])


def key(p: Mapping[str, Any]) -> tuple[Any, ...]:
    """A plan as something to count."""
    return tuple(p[name] for name in memory.PLAN)


def each_once(candidates: Sequence[Fields], answer: dict[str, Any]) -> None:
    """Every candidate is in one of the lists."""
    told = Counter(key(entry["plan"]) for name in ("best", "refused") for entry in answer[name])
    for candidate in candidates:
        times = told[key(candidate)]
        if times != 1:
            raise CheckFailed(
                f"the plan {in_words(candidate)} is listed {times} times, expected once, in best "
                f"or in refused",
                cause="plans that do not fit are dropped without a reason: each must be in refused"
                if not times
                else None,
            )
