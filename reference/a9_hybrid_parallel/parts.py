"""Given: which layers a run is made of: your own where they pass a short trial, else fallbacks.

A trial runs the layer on the very ranks that it is for, on a few numbers, and compares it with
what one device computes. Whatever is not implemented, raises or differs is replaced by its
counterpart of `fallbacks.py`, on all ranks alike, and the run says so. A layer that makes ranks
wait for each other for ever, or that ends the process, cannot be caught so: name its part in the
`fallback` argument.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from . import trials
from .config import TrainConfig

#: part -> the names in it, and where your own are.
PARTS: dict[str, dict[str, str]] = {
    "data parallelism": {"DistributedDataParallel": "a3_data_parallel.ddp"},
    "embedding": {"VocabParallelEmbedding": "a4_tensor_parallel.layers"},
    "head": {"ColumnParallelLinear": "a4_tensor_parallel.layers"},
    "loss": {"vocab_parallel_cross_entropy": "a4_tensor_parallel.cross_entropy"},
    "attention": {"ParallelAttention": "a4_tensor_parallel.transformer"},
    "MLP": {"ParallelMLP": "a4_tensor_parallel.transformer"},
    "sequence norm": {"SequenceParallelLayerNorm": "a5_sequence_parallel.sequence"},
    "sequence block": {"SequenceParallelBlock": "a5_sequence_parallel.sequence"},
    "sequence cuts": {
        "scatter_to_sequence_parallel": "a5_sequence_parallel.sequence",
        "gather_from_sequence_parallel": "a5_sequence_parallel.sequence",
    },
    "partition": {"partition_layers": "a6_pipeline_parallel.partition"},
    "pipeline": {
        "one_f_one_b_schedule": "a6_pipeline_parallel.schedules",
        "PipelineStage": "a6_pipeline_parallel.stage",
        "run_schedule": "a6_pipeline_parallel.executor",
    },
    "experts": {
        "top_k_router": "a8_expert_parallel.router",
        "ExpertParallelMoE": "a8_expert_parallel.layer",
    },
}

#: What the last `choose_parts` of this process decided: part -> why a fallback, "" for your own.
decided: dict[str, str] = {}


class Parts(SimpleNamespace):
    """The layers, under their names: ``parts.ParallelMLP``. ``fallbacks``: part -> why.

    Only what the configuration needs is there.
    """

    fallbacks: dict[str, str]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{name} is not among the parts that this layout needs")

    def summary(self) -> str:
        """One line for people."""
        if not self.fallbacks:
            return "all layers are your own"
        listed = "; ".join(f"{part} ({why})" for part, why in self.fallbacks.items())
        return f"fallbacks for: {listed}"


def needed(config: TrainConfig) -> list[str]:
    """The parts that a layout is made of."""
    wanted = ["partition", "pipeline"]
    if config.dp > 1:
        wanted.append("data parallelism")
    if config.tp > 1:
        wanted += ["embedding", "head", "loss"]
        if config.sp:
            wanted += ["sequence norm", "sequence block", "sequence cuts"]
        else:
            wanted += ["attention"] if config.experts else ["attention", "MLP"]
    if config.experts:
        wanted.append("experts")
    return wanted


def choose_parts(config: TrainConfig, mesh: DeviceMesh, fallback: Iterable[str] = ()) -> Parts:
    """Try the parts that `config` needs and choose, the same on all ranks, which all call it.

    fallback: parts whose fallback is wanted without a trial ("pipeline", …).

    Raises:
        ValueError: `fallback` holds a name that is no part.
    """
    forced = set(fallback)
    if forced - PARTS.keys():
        raise ValueError(f"fallback={sorted(forced - PARTS.keys())}: expected some of {[*PARTS]}")
    chosen: dict[str, Any] = {}
    decided.clear()
    for part in needed(config):
        if part in forced:
            own, why = None, "asked for"
        else:
            own, why = _tried(part, mesh)
        names = PARTS[part]
        if own is None:
            from . import fallbacks  # half a second of torch's modules

            own = {name: getattr(fallbacks, name) for name in names}
        chosen |= own
        decided[part] = why
    return Parts(**chosen, fallbacks={part: why for part, why in decided.items() if why})


def _tried(part: str, mesh: DeviceMesh) -> tuple[dict[str, Any] | None, str]:
    """The student's own, and ""; or `None`, and why not."""
    own: dict[str, Any] | None = None
    why = ""
    try:
        own = {name: _load(module, name) for name, module in PARTS[part].items()}
        trial: Callable[..., None] = trials.TRIALS[part]
        trial(SimpleNamespace(**own), mesh)
    except Exception as error:
        why = f"{type(error).__name__}: {error}".splitlines()[0][:120]
    # Somewhere else it may have failed: no rank is to go another way than the others.
    failed = torch.tensor([float(bool(why))], device=mesh.device_type)
    dist.all_reduce(failed, dist.ReduceOp.MAX)
    if not failed.item():
        return own, ""
    return None, why or "another rank's trial failed"


def _load(module: str, name: str) -> Any:
    package = (__package__ or "").rpartition(".")[0]
    return getattr(importlib.import_module(f"{package}.{module}"), name)
