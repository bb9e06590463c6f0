"""Everything that needs a GPU, on one of them or on as many as there are: `make gpu`.

Binding as NVML describes it; worlds over NCCL, one rank per GPU; more ranks than GPUs, staged
through the host; the real worlds' drivers and the throughput checks of the reference on CUDA; its
functions with their kernels and without.
Says "not run" for what this machine cannot show.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

from grader.checks import workers
from grader.checks.real_world import RealWorld
from grader.checks.settings import Settings, solution_folder
from grader.harness import WorkerServer
from grader.harness.binding import place_ranks
from grader.harness.devices import Machine, read_machine
from grader.harness.worlds import WorldOptions, run_world

NOT_RUN = 2


def reduce_and_report(nbytes: int) -> dict[str, Any]:
    """What every rank does: one all-reduce of ones on its GPU."""
    import torch
    import torch.distributed as dist

    from grader.harness.worlds_rank import current

    here = current()
    tensor = torch.ones(nbytes // 4, device=here.device)
    dist.all_reduce(tensor)
    return {
        "sum": float(tensor[-1]),
        "device": here.device,
        "name": torch.cuda.get_device_name(here.device),
        "backend": dist.get_backend(),
    }


def binding(machine: Machine) -> None:
    """Where ranks would go."""
    for gpu, place in zip(
        machine.gpus, place_ranks(machine, len(machine.gpus), "cuda"), strict=True
    ):
        cores = f"{place.cores[0]}-{place.cores[-1]}"
        print(f"rank {place.local_rank}: {gpu.name} at {gpu.bus_id}, NUMA node {gpu.numa_node}, "
              f"cores {cores}")  # fmt: skip


def world(machine: Machine, ranks: int) -> None:
    """A world of `ranks` on the GPUs of this machine."""
    preload = ["grader.harness.worlds_rank", "bench.gpu"]
    with WorkerServer(preload=preload) as server:
        reply = run_world(
            server,
            "bench.gpu:reduce_and_report",
            [64 << 20] * ranks,
            options=WorldOptions(device="cuda", machine=machine),
        )
    if not reply.ok or any(value["sum"] != ranks for value in reply.values):
        raise SystemExit(f"a world of {ranks} on {len(machine.gpus)} GPUs failed: {reply.detail}")
    first = reply.values[0]
    print(f"{ranks} ranks on {len(machine.gpus)} GPUs over {first['backend']}: right")


def drivers(ranks: int) -> None:
    """The reference's ring all-reduce on CUDA tensors, through the checks' own driver."""
    import torch

    world = RealWorld(Settings("reference", solution_folder("reference"), device="cuda"), {})
    task = "a2.ring_all_reduce"
    inputs = [
        {
            "task": task,
            "cases": [
                {
                    "arguments": {"tensor": torch.arange(1001.0) + rank},
                    "op": "SUM",
                    "ranks": None,
                    "refused": False,
                }
            ],
        }
        for rank in range(ranks)
    ]
    outputs = world.run("a1:collective", inputs, task=task, wall_seconds=120)
    expected = ranks * torch.arange(1001.0) + ranks * (ranks - 1) / 2
    for rank, output in enumerate(outputs):
        if not torch.equal(output[0]["arguments"]["tensor"], expected):
            raise SystemExit(f"rank {rank} of {ranks}: the ring's result is wrong on CUDA")
    print(f"ring all-reduce of {ranks} ranks on CUDA: right")


def throughput(ranks: int) -> None:
    """The library's and the reference's all-reduce over NCCL: time, algbw, busbw."""
    from pathlib import Path

    from grader.report.bench import run_bench

    sizes = [1 << 20, 64 << 20, 256 << 20]
    folder: Path = solution_folder("reference")
    run_bench(
        ["a2.ring_all_reduce"], folder, "reference",
        ranks=ranks, sizes=sizes, device="cuda", json_file=None, out=sys.stdout,
    )  # fmt: skip


def with_kernels() -> None:
    """The reference's functions with their kernels and without: values and times."""
    from bench import kernels_python

    kernels_python.main()


def checks() -> None:
    """`grader check --device cuda` of the reference."""
    command = [sys.executable, "-m", "grader", "check", "--solution", "reference"]
    done = subprocess.run([*command, "--device", "cuda"])
    if done.returncode != 0:
        raise SystemExit("the reference does not earn every point on CUDA")


def run() -> int:
    """Run all that this machine can; an exit status."""
    machine = read_machine()
    if not machine.gpus:
        print("not run: NVML finds no GPU on this machine")
        return NOT_RUN
    count = len(machine.gpus)
    steps: list[tuple[str, Callable[[], None]]] = [
        ("binding", lambda: binding(machine)),
        ("one rank, one GPU", lambda: world(machine, 1)),
        (f"{2 * count} ranks share {count} GPUs", lambda: world(machine, 2 * count)),
        ("drivers, shared GPU", lambda: drivers(2 * count)),
    ]
    if count > 1:
        steps += [
            (f"{count} ranks, {count} GPUs", lambda: world(machine, count)),
            ("drivers over NCCL", lambda: drivers(count)),
        ]
    steps += [
        (f"throughput of {count} ranks", lambda: throughput(count)),
        ("Python with kernels and without", with_kernels),
        ("checks", checks),
    ]
    workers.start()
    try:
        for name, step in steps:
            print(f"-- {name}", flush=True)
            step()
    finally:
        workers.stop()
    if count == 1:
        print("not run: worlds of several ranks over NCCL, and their throughput: one GPU only")
    return 0


def main() -> None:
    """As part of `make bench`: nothing to measure where there is no GPU."""
    if run() not in (0, NOT_RUN):
        raise SystemExit(1)


if __name__ == "__main__":
    sys.exit(run())
