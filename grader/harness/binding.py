"""Which GPU and which cores each rank of a world gets.

A rank is bound to cores only. Memory follows by itself: Linux takes a page from the NUMA node of
the core that touches it first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from grader.harness.devices import Gpu, Machine

Device = Literal["cpu", "cuda"]


class TooFewGpus(RuntimeError):
    """A world that is timed needs a GPU for every rank."""


@dataclass(frozen=True)
class Place:
    """Where one rank runs.

    device: "cpu" or "cuda:N". shared: more ranks than GPUs, so that its data is staged through
    the host: right, but never to be timed.
    """

    local_rank: int
    device: str
    cores: tuple[int, ...]
    numa_node: int = -1
    shared: bool = False

    def to_json(self) -> dict[str, Any]:
        """As a rank is told."""
        return {
            "local_rank": self.local_rank,
            "device": self.device,
            "cores": list(self.cores),
            "numa_node": self.numa_node,
            "shared": self.shared,
        }


def place_ranks(
    machine: Machine, local_world_size: int, device: Device = "cpu", *, timed: bool = False
) -> list[Place]:
    """A place for each rank of one machine.

    On CUDA rank i gets GPU i (i modulo the number of GPUs where there are fewer) and an even share
    of the cores near to it; on the CPU an even share of all cores. Cores are shared when there are
    fewer than ranks.

    Raises `TooFewGpus` when there is no GPU at all, or with `timed` fewer than ranks.
    """
    if local_world_size < 1:
        raise ValueError(f"local_world_size must be at least 1, got {local_world_size}")
    if device == "cpu":
        shares = share(machine.cores, local_world_size)
        return [Place(rank, "cpu", cores) for rank, cores in enumerate(shares)]
    count = len(machine.gpus)
    if count == 0:
        raise TooFewGpus("no GPU was found on this machine")
    if timed and count < local_world_size:
        raise TooFewGpus(f"{local_world_size} ranks are timed on {local_world_size} GPUs: {count}")
    gpus = [machine.gpus[rank % count] for rank in range(local_world_size)]
    near = [_near(machine, gpu) for gpu in gpus]
    places = []
    for rank, gpu in enumerate(gpus):
        neighbours = [other for other in range(local_world_size) if near[other] == near[rank]]
        cores = share(near[rank], len(neighbours))[neighbours.index(rank)]
        shared = count < local_world_size
        places.append(Place(rank, f"cuda:{gpu.index}", cores, gpu.numa_node, shared))
    return places


def _near(machine: Machine, gpu: Gpu) -> tuple[int, ...]:
    """The cores near a GPU that this process may use; all of them when none is known."""
    allowed = set(machine.cores)
    for candidates in (gpu.cores, machine.numa.get(gpu.numa_node, frozenset())):
        usable = allowed & candidates
        if usable:
            return tuple(sorted(usable))
    return machine.cores


def share(cores: Sequence[int], ranks: int) -> list[tuple[int, ...]]:
    """`cores` in so many even, neighbouring shares; with fewer cores than ranks, one core each."""
    if len(cores) < ranks:
        return [(cores[rank % len(cores)],) for rank in range(ranks)]
    bounds = [rank * len(cores) // ranks for rank in range(ranks + 1)]
    return [tuple(cores[low:high]) for low, high in pairwise(bounds)]
