"""One rank of `capstone.py`: the capstone, the whole model on one process, torch's DDP, in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from reference.a9_hybrid_parallel.config import Process, TrainConfig
from reference.a9_hybrid_parallel.data import batch_of_step, load_text
from reference.a9_hybrid_parallel.model import build_model
from reference.a9_hybrid_parallel.train import _Training

Step = Callable[[int], float]


def _plain(config: TrainConfig, parallel: bool) -> Step:
    """The given model trained by itself, or by torch's DDP over all ranks."""
    model: nn.Module = build_model(config)
    ranks = dist.get_world_size() if parallel else 1
    rank = dist.get_rank() if parallel else 0
    if parallel:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
    )
    text = load_text(config)

    def step(number: int) -> float:
        x, y = (t.chunk(ranks, 1)[rank] for t in batch_of_step(text, config, number))
        optimizer.zero_grad()
        total = 0.0
        parts = list(
            zip(x.chunk(config.microbatches, 1), y.chunk(config.microbatches, 1), strict=True)
        )
        for place, (inputs, targets) in enumerate(parts):
            if isinstance(model, DistributedDataParallel):
                model.require_backward_grad_sync = place == len(parts) - 1
            logits = model(inputs)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten()) / len(parts)
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), config.max_norm)
        optimizer.step()
        return total

    return step


def compare(rank: int, given: dict[str, Any]) -> dict[str, Any]:
    """Tokens/s, and ratios (median, least, most) of the capstone's to the others'."""
    config = TrainConfig(**given["config"])
    size = dist.get_world_size()
    training = _Training(config, Process(rank, size, rank, size, torch.device("cpu"), ()))
    steps: dict[str, Step] = {"own": lambda number: training.step(number)[0]}
    # The others wait meanwhile: a process that trains alone has the machine to itself.
    if rank == 0:
        torch.set_num_threads(size)
        steps["one"] = _plain(config, parallel=False)
        torch.set_num_threads(1)
    else:
        steps["one"] = lambda number: 0.0
    if given["ddp"]:
        steps["ddp"] = _plain(config, parallel=True)
    times: dict[str, list[float]] = {name: [] for name in steps}
    difference = 0.0
    for number in range(given["repeats"] + 1):
        losses: dict[str, float] = {}
        for name, step in steps.items():
            dist.barrier()
            torch.set_num_threads(size if name == "one" and rank == 0 else 1)
            begin = time.perf_counter()
            losses[name] = step(number)
            dist.barrier()
            if number:  # the first one warms up
                times[name].append(time.perf_counter() - begin)
        difference = max(difference, abs(losses["own"] - losses["one"]))
    tokens = config.batch * config.sequence
    found: dict[str, Any] = {
        "tokens": tokens / statistics.median(times["own"]),
        "difference": difference,
    }
    for name in times.keys() - {"own"}:
        ratios = [b / a for a, b in zip(times["own"], times[name], strict=True)]
        found[name] = [statistics.median(ratios), min(ratios), max(ratios)]
        found[f"{name}_tokens"] = tokens / statistics.median(times[name])
    return found
