"""Host time of a hierarchical all-reduce on 64 to 1,024 simulated ranks, and of its replay.

The reference's `hierarchical_all_reduce` of 64 MiB on meta tensors, nodes of 8, recorded with
computation and replayed on the dgx-h100 preset. The loop of pure Python tells how fast the core
was.
"""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist

from bench.messages import python_loop
from grader.fabric import simulate
from grader.fabric.cluster import Cluster
from grader.fabric.trace import Trace
from reference.a2_ring_all_reduce.hierarchical import hierarchical_all_reduce

PER_NODE = 8
NODES = (8, 16, 32, 64, 128)


def program(rank: int, nodes: int) -> None:
    """All-reduce 64 MiB over two levels."""
    node, device = divmod(rank, PER_NODE)
    inside = [node * PER_NODE + other for other in range(PER_NODE)]
    across = [other * PER_NODE + device for other in range(nodes)]
    intra = dist.new_group(inside, use_local_synchronization=True)
    inter = dist.new_group(across, use_local_synchronization=True)
    hierarchical_all_reduce(torch.empty(16 << 20, device="meta"), dist.ReduceOp.SUM, intra, inter)


def row(nodes: int) -> dict[str, Any]:
    """Figures of one size."""
    ranks = nodes * PER_NODE
    result = simulate(program, ranks, [nodes] * ranks, compute=True, time_limit=120.0)
    if result.findings:
        raise SystemExit(result.findings[0].message)
    begin = time.perf_counter()
    timed = Trace(result.record).on(Cluster.preset("dgx-h100", ranks))
    replay = time.perf_counter() - begin
    messages = sum(timed.messages_sent)
    return {"ranks": ranks, "messages": messages, "run": result.seconds, "replay": replay,
            "virtual": timed.makespan}  # fmt: skip


def main() -> None:
    """Print a row for each size."""
    row(2)
    print(f"{'ranks':>6} {'messages':>9} {'run s':>7} {'replay s':>9} {'both s':>7} "
          f"{'µs/message':>11} {'virtual ms':>11} {'python loop':>12}")  # fmt: skip
    for nodes in NODES:
        loop = python_loop()
        figures = row(nodes)
        both = figures["run"] + figures["replay"]
        print(
            f"{figures['ranks']:>6} {figures['messages']:>9} {figures['run']:>7.2f} "
            f"{figures['replay']:>9.2f} {both:>7.2f} {both / figures['messages'] * 1e6:>11.1f} "
            f"{figures['virtual'] * 1e3:>11.3f} {loop * 1e3:>9.1f} ms",
            flush=True,
        )
