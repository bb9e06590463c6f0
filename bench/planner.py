"""How long the reference's planner needs for 100,000 candidates, and what it finds alone.

One process on one core. The first row of each model ranks just 100,000 plans of the right product
and batch, drawn from all sizes, schedules and savings; the second lets `plan` make its own list.
"""

from __future__ import annotations

import random
import time

from reference.a9_hybrid_parallel.given import RECOMPUTATIONS, Cluster, Model, Plan
from reference.a9_hybrid_parallel.planner import plan

COUNT = 100_000
CASES = (
    ("gpt3-175b", "dgx-a100", 1024, 1536),
    ("deepseek-v3", "h800-v3", 2048, 15360),
)


def draw(dice: random.Random, model: Model, devices: int, batch: int) -> Plan:
    """A plan whose product and batch are right; whether it fits is the planner's question."""
    while True:
        rest, sizes = devices, []
        for _ in range(3):
            size = dice.choice([n for n in (1, 2, 3, 4, 6, 8, 12, 16, 32) if rest % n == 0])
            sizes.append(size)
            rest //= size
        tp, pp, cp = sizes
        micro_batch = dice.choice((1, 2, 4, 8))
        if batch % (rest * micro_batch) == 0:
            break
    ep = dice.choice([n for n in (1, 2, 4, 8, 16, 32, 64) if rest * cp % n == 0])
    return Plan(
        dp=rest,
        pp=pp,
        tp=tp,
        cp=cp,
        ep=ep if model.experts else 1,
        sequence_parallel=tp > 1,
        micro_batch=micro_batch,
        micro_batches=batch // (rest * micro_batch),
        zero=dice.randrange(4),
        recomputation=dice.choice(RECOMPUTATIONS),
    )


def main() -> None:
    """Print two rows for each model."""
    dice = random.Random(0)
    print(
        f"{'model':>12} {'devices':>8} {'candidates':>11} {'fit':>7} {'seconds':>8} {'µs each':>8}"
    )
    for name, cluster_name, devices, batch in CASES:
        model, cluster = Model.preset(name), Cluster.preset(cluster_name, devices)
        drawn = [draw(dice, model, devices, batch) for _ in range(COUNT)]
        for candidates in (drawn, None):
            begin = time.perf_counter()
            found = plan(model, cluster, batch * model.sequence, candidates)
            seconds = time.perf_counter() - begin
            count = len(found.best) + len(found.refused)
            print(
                f"{name:>12} {devices:>8} {count:>11} {len(found.best):>7} {seconds:>8.2f} "
                f"{seconds / count * 1e6:>8.1f}",
                flush=True,
            )
