"""Training a GPT on dp × pp × tp ranks, with layers of your own.

    torchrun --nproc-per-node 8 -m reference.a9_hybrid_parallel.train --dp 2 --pp 2 --tp 2 --sp

Every layer stands on one pipeline stage, cut over tp ranks; dp replicas of that see different
sequences. What comes out is what one device would have computed, step by step.
"""

from __future__ import annotations

# BEGIN SOLUTION
import math
import re
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from .checkpoint import load_checkpoint, newest_checkpoint, part_of_whole, save_checkpoint

# END SOLUTION
from .config import Process, TrainConfig, main

# BEGIN SOLUTION
from .data import batch_of_step, load_text
from .harness import initialize, shutdown
from .mesh import build_mesh, clip_grad_norm
from .model import Embedding, Head, MoE, build_layer, layer_flops
from .parts import Parts, choose_parts
from .progress import Progress


class _Weight(NamedTuple):
    """A parameter of this rank, and its place in the whole model.

    name: of the dense parameter. dim: along which the tp ranks have shards of it; None: all of it.
    expert: whether it belongs to an expert.
    """

    name: str
    parameter: nn.Parameter
    dim: int | None
    expert: bool


class _Router(nn.Module):
    def __init__(self, dense: nn.Linear, top_k: int, parts: Parts) -> None:
        super().__init__()
        self.weight = dense.weight
        self._choose, self._top_k = parts.top_k_router, top_k

    def forward(self, tokens: torch.Tensor) -> Any:
        return self._choose(F.linear(tokens, self.weight), self._top_k)


class _Stage(nn.Module):
    """This rank's layers, cut; between them (sequence, batch, hidden), sequence / tp with sp."""

    def __init__(self, config: TrainConfig, mesh: Any, parts: Parts, first: int, end: int) -> None:
        super().__init__()
        self._config, self._parts = config, parts
        self._tp, self._ep = mesh.get_group("tp"), mesh.get_group("ep")
        self._experts = range(config.experts)[
            config.experts // config.ep * dist.get_rank(self._ep) :
        ]
        self.layers = nn.ModuleList()
        self.weights: list[_Weight] = []
        for number in range(first, end):
            dense = build_layer(config, number).to(mesh.device_type)
            shapes = {name: p.shape for name, p in dense.named_parameters()}
            layer = self._cut(dense)
            self.layers.append(layer)
            for local, parameter in layer.named_parameters():
                # An expert's number counts those of all ranks.
                name = re.sub(
                    r"(?<=experts\.)\d+", lambda found: str(self._experts[int(found[0])]), local
                )
                pairs = enumerate(zip(shapes[name], parameter.shape, strict=True))
                dim = next((d for d, (whole, own) in pairs if whole != own), None)
                expert = ".experts." in name
                self.weights.append(_Weight(f"{number}.{name}", parameter, dim, expert))

    def _cut(self, layer: nn.Module) -> nn.Module:
        config, parts, tp = self._config, self._parts, self._tp
        if isinstance(layer, Embedding):
            if config.tp > 1:
                layer.tokens = parts.VocabParallelEmbedding.from_embedding(layer.tokens, tp)
            return layer
        if isinstance(layer, Head):
            if config.tp > 1:
                layer.output = parts.ColumnParallelLinear.from_linear(layer.output, tp)
            if config.sp and config.tp > 1:
                layer.norm = parts.SequenceParallelLayerNorm.from_dense(layer.norm, tp)
            return layer
        if isinstance(layer.mlp, MoE):
            # With tp every rank of the group sends all tokens to experts of its own.
            own = [layer.mlp.experts[n] for n in self._experts[: config.experts // config.ep]]
            router = _Router(layer.mlp.router, config.top_k, parts)
            layer.mlp = parts.ExpertParallelMoE(own, router, self._ep)
        elif config.tp > 1 and config.sp:
            return parts.SequenceParallelBlock.from_dense(layer, tp)
        elif config.tp > 1:
            layer.mlp = parts.ParallelMLP.from_dense(layer.mlp, tp)
        if config.tp > 1:
            layer.attention = parts.ParallelAttention.from_dense(layer.attention, tp)
        return layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sp = self._config.sp and self._config.tp > 1
        for layer in self.layers:
            if sp and isinstance(layer, Head):
                # Not through the column-parallel layer: its f would sum the gradients over the tp
                # ranks, and so does the way back through the gathering.
                x = self._parts.gather_from_sequence_parallel(layer.norm(x), self._tp)
                x = F.linear(x, layer.output.weight)
                continue
            x = layer(x)
            if sp and isinstance(layer, Embedding):
                x = self._parts.scatter_to_sequence_parallel(x, self._tp)
        return x


class _Run(nn.Module):
    """What a DistributedDataParallel sees: the parameters that it is to average, what to run."""

    def __init__(self, run: nn.Module, parameters: list[nn.Parameter]) -> None:
        super().__init__()
        self._run = [run]  # in a list: not all of its parameters are
        self.own = nn.ParameterList(parameters)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._run[0](x)


class _Replica(nn.Module):
    """A stage whose gradients are averaged over its replicas, within the last backward of a step.

    The dp replicas share the parameters of no expert; an expert's are on dp / ep of them.
    """

    def __init__(self, config: TrainConfig, mesh: Any, parts: Parts, stage: _Stage) -> None:
        super().__init__()
        self._config = config
        self._experts = [weight.parameter for weight in stage.weights if weight.expert]
        dense = [weight.parameter for weight in stage.weights if not weight.expert]
        self._parallel: list[Any] = []
        run: Any = stage
        for parameters, name in ((dense, "dp"), (self._experts, "edp")):
            group = mesh.get_group(name)
            if parameters and group.size() > 1:
                run = parts.DistributedDataParallel(_Run(run, parameters), group)
                self._parallel.append(run)
        self._run = [run]

    def begin(self) -> None:
        """A step begins: no backward but the last sends anything."""
        self._left = self._config.microbatches
        self._silence = ExitStack()
        for each in self._parallel:
            self._silence.enter_context(each.no_sync())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self._run[0](x)
        if y.requires_grad:
            y.register_hook(self._backward_begins)
        return y

    def _backward_begins(self, gradient: torch.Tensor) -> None:
        self._left -= 1
        if self._left == 0:
            self._silence.close()

    def finish(self) -> None:
        """Gradients become those of the mean over all sequences of the batch."""
        for each in self._parallel:
            each.finish_gradient_synchronization()
        # An expert has seen the tokens of ep replicas, each with the mean loss of its own.
        for parameter in self._experts:
            if parameter.grad is not None:
                parameter.grad.div_(self._config.ep)


class _Training:
    """One rank's part of the model, its optimizer, and the steps."""

    def __init__(self, config: TrainConfig, process: Process) -> None:
        if process.world_size != config.world_size:
            raise ValueError(
                f"dp {config.dp} × pp {config.pp} × tp {config.tp} = {config.world_size} ranks, "
                f"but the world has {process.world_size}"
            )
        self.config, self.process = config, process
        sizes = {"tp": config.tp, "pp": config.pp, "ep": config.ep, "dp": config.dp}
        self.mesh = build_mesh(process.world_size, **sizes)
        self.at = {n: dist.get_rank(self.mesh.get_group(n)) for n in ("dp", "pp", "tp", "edp")}
        self.parts = choose_parts(config, self.mesh)
        # What tp ranks both have they must also draw alike.
        torch.manual_seed(config.seed * 1_000_003 + process.rank // config.tp)
        first, end = self.parts.partition_layers(layer_flops(config), config.pp)[self.at["pp"]]
        self.stage = _Stage(config, self.mesh, self.parts, first, end)
        self.replica = _Replica(config, self.mesh, self.parts, self.stage)
        self.stages = {self.at["pp"]: self.parts.PipelineStage(self.replica)}
        self.schedule = self.parts.one_f_one_b_schedule(config.pp, config.microbatches)
        self.optimizer = torch.optim.AdamW(
            [weight.parameter for weight in self.stage.weights],
            lr=config.learning_rate,
            weight_decay=config.weight_decay,
        )
        self.text = load_text(config)
        self.is_first, self.is_last = self.at["pp"] == 0, self.at["pp"] == config.pp - 1

    def step(self, number: int) -> tuple[float, float]:
        """Loss, mean over the whole batch, and norm of the gradient: the same on all ranks."""
        inputs, targets = (self._own(t) for t in batch_of_step(self.text, self.config, number))
        self.optimizer.zero_grad()
        self.replica.begin()
        loss = self.parts.run_schedule(
            self.schedule,
            self.stages,
            inputs if self.is_first else None,
            targets if self.is_last else None,
            self._loss,
            self.mesh.get_group("pp"),
        )
        self.replica.finish()
        norm = self._clip()
        self.optimizer.step()
        total = torch.zeros((), dtype=torch.float64, device=self.process.device)
        if self.is_last and self.at["tp"] == 0:
            total += loss.to(torch.float64) / self.config.dp
        dist.all_reduce(total)
        return total.item(), norm

    def _own(self, whole: torch.Tensor) -> list[torch.Tensor]:
        """This replica's sequences of a batch, micro-batch by micro-batch."""
        own = whole.chunk(self.config.dp, dim=1)[self.at["dp"]].to(self.process.device)
        return [part.contiguous() for part in own.chunk(self.config.microbatches, dim=1)]

    def _loss(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        if self.config.tp > 1:
            group = self.mesh.get_group("tp")
            return self.parts.vocab_parallel_cross_entropy(logits, target, group).mean()
        return F.cross_entropy(logits.flatten(0, -2), target.flatten())

    def _clip(self) -> float:
        """Clip by the norm of the whole model's gradient; returns it."""
        # Of the ranks that hold the same numbers the first one counts them.
        counted = [
            w.parameter
            for w in self.stage.weights
            if self.at["edp" if w.expert else "dp"] == 0
            and (w.dim is not None or self.at["tp"] == 0)
        ]
        norm = clip_grad_norm(counted, [], math.inf)
        factor = min(1.0, self.config.max_norm / (float(norm) + 1e-6))
        for weight in self.stage.weights:
            if factor < 1 and weight.parameter.grad is not None:
                weight.parameter.grad.mul_(factor)
        return float(norm)

    def state(self, step: int) -> dict[str, Any]:
        """All that a run needs to go on, by names that no layout changes."""
        found: dict[str, Any] = {"step": step}
        for name, parameter, dim, _ in self.stage.weights:
            kept = self.optimizer.state[parameter]
            if not kept:  # before the first step
                kept["step"] = torch.tensor(float(step))
                kept["exp_avg"] = torch.zeros_like(parameter)
                kept["exp_avg_sq"] = torch.zeros_like(parameter)
            tensors = {"weight": parameter.data} | {k: kept[k] for k in ("exp_avg", "exp_avg_sq")}
            for kind, tensor in tensors.items():
                found[f"{kind}.{name}"] = part_of_whole(tensor, self.mesh["tp"], dim)
        return found

    def resume(self) -> int:
        """Read the newest checkpoint, if there is one; how many steps it is from the beginning."""
        found = newest_checkpoint(self.config.checkpoint) if self.config.resume else None
        if found is None:
            return 0
        place, step = found
        load_checkpoint(place, self.state(step))
        return step

    def run(self) -> list[float]:
        config = self.config
        progress = Progress(config, self.process, prints=self.process.rank == 0)
        done = self.resume()
        progress.say(f"{config.layout}; {self.parts.summary()}")
        if done:
            progress.say(f"goes on after step {done}")
        losses: list[float] = []
        try:
            for number in range(done, config.steps):
                loss, norm = self.step(number)
                losses.append(loss)
                done = number + 1
                progress.step(number, loss, norm)
                last = done == config.steps
                if config.checkpoint and (
                    last or (config.save_every and done % config.save_every == 0)
                ):
                    save_checkpoint(config.checkpoint, done, self.state(done))
        except (RuntimeError, OSError) as error:
            if not _of_the_connection(error):
                raise
            first = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            raise RuntimeError(
                f"rank {self.process.rank} stopped in step {done + 1}: another rank has failed or "
                f"no longer answers ({first}). Start again with --resume to go on from the last "
                f"whole checkpoint."
            ) from error
        return losses


def _of_the_connection(error: BaseException) -> bool:
    """Whether an error comes from the other ranks' end: gloo has no types for that, only words."""
    words = ("gloo", "nccl", "connection", "timed out", "timeout", "peer")
    return isinstance(error, dist.DistError) or any(word in str(error).lower() for word in words)


# END SOLUTION


def train(config: TrainConfig) -> list[float]:
    """Train the given GPT as `config` says, on all ranks of the job, which all call it.

    The model is `build_layer`'s; layer by layer on pp stages (as even as can be), cut over tp ranks
    (with `sp` along the sequence between them), its experts over ep of the dp replicas. Step n
    trains on `batch_of_step(text, config, n)`: replica r of dp takes the r-th of dp equal shares of
    the sequences, in order, in `microbatches` equal parts. The loss is the mean over all
    tokens of the batch; its gradient is clipped to `max_norm`, over the whole model;
    ``torch.optim.AdamW`` takes the step. No rank keeps parameters, gradients or optimizer states
    that are another stage's or another shard's, once training has begun.

    Layers come from ``choose_parts``: your own of assignments 3 to 8 where they pass their trial.
    Progress goes to standard output on rank 0 (``Progress``), with the fallbacks that were used.

    With `checkpoint`, the run is saved every `save_every` steps and at the end, by names and
    placements that do not depend on the layout; with `resume` it goes on from the newest one,
    whatever layout wrote it, on the curve that it would have been on. When a rank dies, the
    others end within `timeout`, with a RuntimeError that says so.

    Returns:
        The loss of each step that this call ran, before its update, the same on all ranks, and the
        same (but for rounding) for every layout.

    Raises:
        ValueError: dp·pp·tp is not the world's size; `heads`, `hidden` and so on as in
            ``TrainConfig``.
        RuntimeError: another rank is gone.
    """
    # BEGIN SOLUTION
    process = initialize(config.device, config.seed, config.timeout)
    try:
        losses = _Training(config, process).run()
    except BaseException as error:
        shutdown(error)
        raise
    shutdown()
    return losses
    # END SOLUTION


if __name__ == "__main__":
    raise SystemExit(main(train))
