"""How fast an all-reduce of assignment 2 is, beside the library's own."""

from __future__ import annotations

from grader.checks import problems
from grader.checks.throughput import Plan, Throughput

RANKS = 4
#: Not less on the CPU: at 1 MiB even the quadratic all-reduce reaches half of the library's speed.
NBYTES = {"cpu": 16 << 20, "cuda": 256 << 20}
#: Ratio that earns nothing: the quadratic all-reduce lies below it even beside a busy process.
FLOOR = 0.45
#: Ratio that earns everything: the reference lies well above it, also beside a busy process.
FULL = {"a2.ring_all_reduce": 0.7, "a2.pipelined_ring_all_reduce": 0.62}


def keeps_up(throughput: Throughput, task: str) -> None:
    """Judge the task's function against torch's all-reduce, gloo or NCCL."""
    backend = "gloo" if throughput.device == "cpu" else "NCCL"
    throughput.judge(
        task,
        "timed:all_reduce",
        "timed:library_all_reduce",
        problems.all_reduce(RANKS, NBYTES[throughput.device], given=task),
        Plan(FLOOR, FULL[task]),
        allow="p2p",
        baseline_name=f"{backend}'s all_reduce",
    )
