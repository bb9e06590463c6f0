"""The capstone's GPT on the examiner's side: one device, functional, no code of the solution.

It draws the same initial parameters and batches as the given `model.py` and `data.py` promise.
`curve` trains it; a `Fault` trains it wrongly, so that a wrong curve can be told by its values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY = 256
DTYPES = {"float32": torch.float32, "float64": torch.float64}
Parameters = dict[str, torch.Tensor]

#: The smallest model in which everything occurs.
SMALL: dict[str, Any] = {
    "layers": 2,
    "hidden": 16,
    "heads": 2,
    "experts": 0,
    "top_k": 2,
    "sequence": 8,
    "batch": 12,
    "microbatches": 3,
    "learning_rate": 3e-3,
    "weight_decay": 0.1,
    "max_norm": 1e9,
    "dtype": "float64",
    "device": "cpu",
    "quiet": True,
}


def _linear(name: str, inputs: int, outputs: int, bias: bool = True) -> Parameters:
    layer = nn.Linear(inputs, outputs, bias)
    return {f"{name}.{n}": p.detach() for n, p in layer.named_parameters()}


def _norm(name: str, hidden: int) -> Parameters:
    return {f"{name}.weight": torch.ones(hidden), f"{name}.bias": torch.zeros(hidden)}


def _mlp(name: str, hidden: int, width: int) -> Parameters:
    return _linear(f"{name}.up", hidden, width) | _linear(f"{name}.down", width, hidden)


def initial(config: dict[str, Any]) -> Parameters:
    """All parameters by their names in the dense model: "1.attention.query.weight"."""
    hidden, last = config["hidden"], config["layers"] + 1
    whole: Parameters = {}
    for number in range(last + 1):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config["seed"] * 1_000_003 + number)
            if number == 0:
                table = nn.Embedding(VOCABULARY, hidden).weight.detach()
                positions = torch.randn(config["sequence"], hidden) / 10
                made = {"tokens.weight": table, "positions": positions}
            elif number == last:
                made = _norm("norm", hidden) | _linear("output", hidden, VOCABULARY, bias=False)
            else:
                made = _norm("attention_norm", hidden) | _norm("mlp_norm", hidden)
                for name in ("query", "key", "value", "output"):
                    made |= _linear(f"attention.{name}", hidden, hidden)
                made |= _mlp("mlp", hidden, 4 * hidden)
                if config["experts"]:
                    made = {n: p for n, p in made.items() if not n.startswith("mlp.")}
                    made |= _linear("mlp.router", hidden, config["experts"], bias=False)
                    for expert in range(config["experts"]):
                        made |= _mlp(f"mlp.experts.{expert}", hidden, 2 * hidden)
        whole |= {f"{number}.{name}": tensor for name, tensor in made.items()}
    dtype = DTYPES[config["dtype"]]
    return {name: tensor.to(dtype, copy=True) for name, tensor in whole.items()}


def batch(
    text: torch.Tensor, config: dict[str, Any], step: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets of a step, (sequence, batch)."""
    generator = torch.Generator().manual_seed(config["seed"] * 1_000_003 + step)
    most = len(text) - config["sequence"]
    begins = torch.randint(most, (config["batch"],), generator=generator)
    rows = text.long()[begins + torch.arange(config["sequence"] + 1).unsqueeze(1)]
    return rows[:-1], rows[1:]


def loss_of(
    parameters: Parameters, config: dict[str, Any], x: torch.Tensor, y: torch.Tensor
) -> torch.Tensor:
    """Mean loss over the tokens of (sequence, batch) inputs."""

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(x, parameters[f"{name}.weight"], parameters.get(f"{name}.bias"))

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        weight, bias = parameters[f"{name}.weight"], parameters[f"{name}.bias"]
        return F.layer_norm(x, x.shape[-1:], weight, bias)

    def mlp(x: torch.Tensor, name: str) -> torch.Tensor:
        return linear(F.gelu(linear(x, f"{name}.up")), f"{name}.down")

    hidden, heads, last = config["hidden"], config["heads"], config["layers"] + 1
    sequence, rows = x.shape
    h = parameters["0.tokens.weight"][x] + parameters["0.positions"][:sequence].unsqueeze(1)
    mask = torch.ones(sequence, sequence, dtype=torch.bool).triu(1)
    for n in range(1, last):
        z = norm(h, f"{n}.attention_norm")
        q, k, v = (
            linear(z, f"{n}.attention.{name}")
            .view(sequence, rows, heads, hidden // heads)
            .permute(1, 2, 0, 3)
            for name in ("query", "key", "value")
        )
        scores = (q @ k.transpose(-1, -2) / math.sqrt(hidden // heads)).masked_fill(mask, -math.inf)
        attended = (scores.softmax(-1) @ v).permute(2, 0, 1, 3).reshape(sequence, rows, hidden)
        h = h + linear(attended, f"{n}.attention.output")
        z = norm(h, f"{n}.mlp_norm")
        if config["experts"]:
            best, chosen = linear(z, f"{n}.mlp.router").topk(config["top_k"], dim=-1)
            shares = torch.zeros(sequence, rows, config["experts"], dtype=h.dtype)
            shares = shares.scatter(-1, chosen, best.softmax(-1))
            for e in range(config["experts"]):
                h = h + shares[..., e : e + 1] * mlp(z, f"{n}.mlp.experts.{e}")
        else:
            h = h + mlp(z, f"{n}.mlp")
    logits = linear(norm(h, f"{last}.norm"), f"{last}.output")
    return F.cross_entropy(logits.flatten(0, 1), y.flatten())


@dataclass(frozen=True)
class Layout:
    """dp × pp × tp ranks."""

    dp: int = 1
    pp: int = 1
    tp: int = 1
    ep: int = 1
    sp: bool = False

    @property
    def ranks(self) -> int:
        """How many."""
        return self.dp * self.pp * self.tp

    @property
    def options(self) -> dict[str, Any]:
        """For `TrainConfig`."""
        return {"dp": self.dp, "pp": self.pp, "tp": self.tp, "ep": self.ep, "sp": self.sp}

    def __str__(self) -> str:
        words = f"(dp, pp, tp) = ({self.dp}, {self.pp}, {self.tp})"
        return words + (" with sp" if self.sp else "") + (f", ep {self.ep}" if self.ep > 1 else "")


def is_sharded(name: str) -> bool:
    """Whether tensor parallelism cuts a parameter."""
    kinds = ("tokens", "query", "key", "value", "up", "attention.output.weight", "down.weight")
    dense = ".experts." not in name and ".router." not in name
    head = name.endswith(".output.weight") and ".attention." not in name
    return dense and (head or any(kind in name for kind in kinds))


@dataclass(frozen=True)
class Fault:
    """One way to train wrongly. cause: the line for the student.

    scale, expert_scale, body_scale: of all gradients, of the experts', of all but the head's.
    share: (i, n): only the i-th of n parts of each batch is trained on. report: (i, n): only the
    loss of that part is reported. restart: the step at which something of the state is lost,
    forgets: "optimizer", "count", "weights" or "data". frozen: the parameters never change. decay,
    clip: weight decay and clipping are on. counts: how often a parameter's squares are in the norm.
    apart: parameters of one number are clipped by a norm of their own.
    """

    cause: str
    scale: float = 1.0
    expert_scale: float = 1.0
    body_scale: float = 1.0
    share: tuple[int, int] = (0, 1)
    report: tuple[int, int] = (0, 1)
    restart: int = -1
    forgets: str = ""
    decay: bool = True
    clip: bool = True
    frozen: bool = False
    counts: Callable[[str], float] | None = None
    apart: Callable[[str], int] | None = None


NO_FAULT = Fault("")


def curve(
    config: dict[str, Any], text: torch.Tensor, fault: Fault = NO_FAULT
) -> tuple[list[float], list[float]]:
    """The loss before each step's update, and the norm of its gradient before clipping."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for so little work, others would only spin
    try:
        return _trained(config, text, fault)
    finally:
        torch.set_num_threads(threads)


def _trained(
    config: dict[str, Any], text: torch.Tensor, fault: Fault
) -> tuple[list[float], list[float]]:
    weights = initial(config)
    head = f"{config['layers'] + 1}.output.weight"
    for tensor in weights.values():
        tensor.requires_grad_()
    optimizer = _optimizer(weights, config, fault)
    losses: list[float] = []
    norms: list[float] = []
    for step in range(config["steps"]):
        if step == fault.restart:
            if fault.forgets == "weights":
                for name, tensor in initial(config).items():
                    weights[name].data.copy_(tensor)
            if fault.forgets in ("optimizer", "weights"):
                optimizer = _optimizer(weights, config, fault)
            if fault.forgets == "count":
                for kept in optimizer.state.values():
                    kept["step"].zero_()
        lost = fault.forgets == "data" and step >= fault.restart
        x, y = batch(text, config, step - fault.restart if lost else step)
        part, parts = fault.share
        x, y = x.chunk(parts, 1)[part], y.chunk(parts, 1)[part]
        optimizer.zero_grad()
        loss = loss_of(weights, config, x, y)
        loss.backward()  # type: ignore[no-untyped-call]
        part, parts = fault.report
        with torch.no_grad():
            shown = loss_of(weights, config, x.chunk(parts, 1)[part], y.chunk(parts, 1)[part])
        losses.append(float(shown))
        for name, tensor in weights.items():
            if tensor.grad is not None:
                tensor.grad *= fault.scale * (fault.expert_scale if ".experts." in name else 1.0)
                tensor.grad *= 1.0 if name == head else fault.body_scale
        most = config["max_norm"] if fault.clip else math.inf
        if fault.counts or fault.apart:
            _clip_wrongly(weights, most, fault)
        else:
            norms.append(float(nn.utils.clip_grad_norm_(list(weights.values()), most)))
        if not fault.frozen:
            optimizer.step()
    return losses, norms


def _clip_wrongly(weights: Parameters, most: float, fault: Fault) -> None:
    """By norms in which parameters count more than once, or part by part."""
    parts: dict[int, list[tuple[float, torch.Tensor]]] = {}
    for name, tensor in weights.items():
        if tensor.grad is not None:
            part = fault.apart(name) if fault.apart else 0
            count = fault.counts(name) if fault.counts else 1.0
            parts.setdefault(part, []).append((count, tensor.grad))
    for found in parts.values():
        norm = math.sqrt(sum(count * float(grad.square().sum()) for count, grad in found))
        for _, grad in found:
            grad *= min(1.0, most / (norm + 1e-6))


def _optimizer(weights: Parameters, config: dict[str, Any], fault: Fault) -> torch.optim.AdamW:
    for tensor in weights.values():
        # Experts without a token have a gradient of zeros, as in the parallel layer.
        tensor.grad = None
    return torch.optim.AdamW(
        weights.values(),
        lr=config["learning_rate"],
        weight_decay=config["weight_decay"] if fault.decay else 0.0,
    )
