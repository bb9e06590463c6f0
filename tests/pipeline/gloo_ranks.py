"""What runs on real processes, rank by rank."""

from __future__ import annotations

from .lineup import LINEUP, largest_error


def errors(rank: int, cases: list[tuple[str, int]]) -> list[float]:
    """For each (schedule, micro-batches): the error against the unsplit model."""
    import torch.distributed as dist

    size = dist.get_world_size()
    found = []
    for name, microbatches in cases:
        entry = LINEUP[name]
        schedule = entry.make(size, microbatches)
        found.append(largest_error(schedule, entry.run, rank, model="block"))
    return found
