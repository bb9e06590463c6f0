"""Step times that a student's `step_time` gives, and whether each traffic is felt in them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from grader.checks import a9_memory as memory
from grader.checks import causes_a9 as causes
from grader.checks.a9_memory import model, plan, words
from grader.checks.a9_published import A100
from grader.checks.framework import CheckFailed
from grader.checks.world import SimulatedCluster as Cluster

Fields = dict[str, Any]


def seconds(cluster: Cluster, cases: Sequence[Fields]) -> list[float]:
    """The step times of all cases: finite and above 0."""
    outcome = cluster.run("a9:times", [{"cases": list(cases)}], task="a9.step_time")
    found = []
    for case, answer in zip(cases, outcome.outputs[0], strict=True):
        value = answer["seconds"]
        if value is None:
            raise CheckFailed(f"step_time {causes.lacks(answer)}")
        if not (math.isfinite(value) and value > 0):
            raise CheckFailed(
                f"step_time returned {value} for {words(case['plan'], memory.PLAN)}, expected "
                f"seconds above 0"
            )
        found.append(value)
    return found


FREE = {
    "intra_bandwidth": 1e30, "inter_bandwidth": 1e30, "intra_latency": 0.0, "inter_latency": 0.0,
}  # fmt: skip


def case(m: Fields, p: Fields, **cluster: Any) -> Fields:
    """A step on DGX A100s, whole nodes of them, unless `cluster` says otherwise."""
    devices = p["dp"] * p["pp"] * p["tp"] * p["cp"]
    return {"model": m, "plan": p, "cluster": A100 | {"nodes": -(-devices // 8)} | cluster}


SEQUENCE_LENGTH = 2048


def wide(hidden: int, layers: int = 16) -> Fields:
    """A GPT of this width."""
    return model(
        layers=layers, hidden=hidden, heads=hidden // 128, vocab=8192, sequence=SEQUENCE_LENGTH
    )


# Traffic ------------------------------------------------------------------------------------------

SPARSE_WIDE = model(
    layers=8, hidden=2048, heads=16, vocab=8192, sequence=2048, experts=16, expert_hidden=1024,
    top_k=2, gated=True,
)  # fmt: skip
#: Each dimension, where its traffic must be felt: (what, model, plan, the link that it crosses,
#: whether nothing crosses the other one).
PLACES: list[tuple[str, Fields, Fields, str, bool]] = [
    ("tp 8 inside a node", wide(4096), plan(tp=8, micro_batch=2, micro_batches=4), "intra", True),
    ("tp 16 on two nodes", wide(4096), plan(tp=16, micro_batch=2, micro_batches=4), "inter", True),
    ("pp 4 × tp 8 on four nodes", wide(2048, 8), plan(pp=4, tp=8, micro_batches=8), "inter", False),
    ("pp 8 inside a node", wide(2048, 8), plan(pp=8, micro_batches=8), "intra", True),
    ("dp 8 inside a node", wide(4096, 8), plan(dp=8), "intra", True),
    ("dp 4 × tp 8 on four nodes", wide(4096), plan(dp=4, tp=8), "inter", False),
    ("ZeRO-3 on four nodes", wide(4096, 8), plan(dp=32, zero=3), "inter", False),
]  # fmt: skip
SLOWER = 100.0
_WHERE = {"intra": "inside nodes", "inter": "between nodes"}
_OTHER = {"intra": "inter", "inter": "intra"}


def judge_links(cluster: Cluster) -> None:
    """Slower links are felt by just those dimensions that cross them."""
    cases = []
    for _, m, p, _, _ in PLACES:
        cases.append(case(m, p))
        for link in ("intra", "inter"):
            name = f"{link}_bandwidth"
            cases.append(case(m, p, **{name: A100[name] / SLOWER}))
    found = seconds(cluster, cases)
    for number, (what, _, p, link, alone) in enumerate(PLACES):
        base, *slow = found[3 * number : 3 * number + 3]
        own, other = slow if link == "intra" else reversed(slow)
        dimension, elsewhere = what.split()[0], _WHERE[_OTHER[link]]
        if own < 1.05 * base:
            why = f"the traffic of {dimension} is left out, or charged to the links {elsewhere}"
            if other > 1.05 * base and (alone or p["tp"] == 1):
                why = f"the traffic of {dimension} is charged to the links {elsewhere}"
            elif other < 1.05 * base:
                why = f"the traffic of {dimension} is left out"
            raise CheckFailed(
                f"{what}: {own / base:.3f} × the time when the links {_WHERE[link]} are "
                f"{SLOWER:g} × slower, expected more; {other / base:.3f} × when those {elsewhere} "
                f"are",
                cause=why,
            )
        if alone and other > 1.001 * base:
            raise CheckFailed(
                f"{what}: {other / base:.3f} × the time when the links {elsewhere} are "
                f"{SLOWER:g} × slower, expected no change",
                cause=f"{dimension} does not cross these links: ranks are placed tp, cp, dp, pp, "
                f"from the inside out",
            )


def judge_micro_batches(cluster: Cluster) -> None:
    """Keys and values, and tokens, are sent for every micro-batch; gradients once a step."""
    trials = [
        ("cp", "keys and values", wide(4096, 4), {"cp": 2, "tp": 8}),
        ("ep", "tokens", SPARSE_WIDE, {"dp": 4, "tp": 8, "ep": 4}),
    ]
    slow = A100["inter_bandwidth"] / SLOWER
    cases = [
        case(
            m,
            plan(**cut, sequence_parallel=True, micro_batch=size, micro_batches=count),
            inter_bandwidth=rate,
        )
        for _, _, m, cut in trials
        for size, count in ((1, 2), (1, 32), (4, 2))
        for rate in (1e30, slow)
    ]
    found = seconds(cluster, cases)
    for number, (name, what, _, _) in enumerate(trials):
        times = found[6 * number : 6 * number + 6]
        few, many, large = (b - a for a, b in zip(times[::2], times[1::2], strict=True))
        if many < 1.5 * few:
            # Larger micro-batches do not change what gradients cost.
            raise CheckFailed(
                f"{name} across nodes: a slow network costs {few:.3f} s with 2 micro-batches, "
                f"{many:.3f} s with 32; expected much more, since each sends {what} (with 2 of "
                f"four sequences each it costs {large:.3f} s)",
                cause=f"the traffic of {name} is counted once a step, not for every micro-batch"
                if large > 1.2 * few
                else f"the traffic of {name} is left out, or charged to the links inside nodes",
            )
