"""Given: what is trained, how it is cut, and the machine it runs on; what a planner hands back.

Units are bytes, seconds, FLOP/s, and bytes/s of one direction.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

Recomputation = Literal["none", "selective", "full"]
RECOMPUTATIONS: tuple[Recomputation, ...] = ("none", "selective", "full")


@dataclass(frozen=True)
class Model:
    """A decoder-only transformer.

    layers, hidden, heads, vocab, sequence: l, h, a, V, s.
    ffn_hidden: width of the MLP, 0 for 4h. gated: three matrices in the MLP (SwiGLU), not two.
    kv_heads: of grouped queries, 0 for as many as heads.
    tied: one matrix embeds tokens and makes logits. learned_positions: s·h more parameters.
    biases: linear layers and norms have them (13h per layer); else norms have weights only (2h).
    experts: in each MoE layer, 0 for a dense model; of expert_hidden each. top_k: experts of a
        token. shared_experts: further ones that every token takes, on every rank.
    dense_layers: layers of a MoE model that have the dense MLP instead.
    attention_parameters: of one layer, where attention is another (MLA); 0 for 2h² + 2h²·kv/a.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    vocab: int
    sequence: int
    ffn_hidden: int = 0
    gated: bool = False
    kv_heads: int = 0
    tied: bool = True
    learned_positions: bool = True
    biases: bool = True
    experts: int = 0
    expert_hidden: int = 0
    top_k: int = 0
    shared_experts: int = 0
    dense_layers: int = 0
    attention_parameters: int = 0

    def __post_init__(self) -> None:
        for field in ("layers", "hidden", "heads", "vocab", "sequence"):
            _at_least(field, getattr(self, field), 1)
        for field in (
            "ffn_hidden", "kv_heads", "experts", "expert_hidden", "top_k", "shared_experts",
            "dense_layers", "attention_parameters",
        ):  # fmt: skip
            _at_least(field, getattr(self, field), 0)
        if self.kv_heads and self.heads % self.kv_heads:
            raise ValueError(f"kv_heads={self.kv_heads} does not divide heads={self.heads}")
        if self.experts and not (1 <= self.top_k <= self.experts and self.expert_hidden):
            raise ValueError(
                f"experts={self.experts} need 1 <= top_k <= experts and expert_hidden >= 1, got "
                f"top_k={self.top_k}, expert_hidden={self.expert_hidden}"
            )
        if self.dense_layers > self.layers:
            raise ValueError(f"dense_layers={self.dense_layers} of layers={self.layers}")

    # Parameters ---------------------------------------------------------------------------------

    @property
    def key_value_share(self) -> float:
        """Heads of keys and values ÷ heads of queries."""
        return (self.kv_heads or self.heads) / self.heads

    @property
    def attention_layer(self) -> int:
        """Attention's parameters of one layer, and all that belongs to no MLP: norms, biases."""
        key_value = (self.kv_heads or self.heads) * self.hidden // self.heads
        attention = self.attention_parameters or 2 * self.hidden * (self.hidden + key_value)
        return attention + (13 if self.biases else 2) * self.hidden

    @property
    def mlp(self) -> int:
        """Parameters of the dense MLP of one layer."""
        return (3 if self.gated else 2) * self.hidden * (self.ffn_hidden or 4 * self.hidden)

    @property
    def expert(self) -> int:
        """Parameters of one expert."""
        return (3 if self.gated else 2) * self.hidden * self.expert_hidden

    @property
    def router(self) -> int:
        """Parameters of a MoE layer that every rank holds: router and shared experts."""
        return self.hidden * self.experts + self.shared_experts * self.expert

    @property
    def moe_layers(self) -> int:
        """Layers with experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def embedding(self) -> int:
        """Parameters of the embedding: V·h, and s·h where positions are learned."""
        return (self.vocab + (self.sequence if self.learned_positions else 0)) * self.hidden

    @property
    def head(self) -> int:
        """Parameters of the matrix that makes logits, where it is not the embedding's."""
        return 0 if self.tied else self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """All parameters. GPT: 12lh²(1 + 13/(12h) + (V + s)/(12lh)) [Narayanan et al. 2021]."""
        dense = (self.layers - self.moe_layers) * self.mlp
        sparse = self.moe_layers * (self.router + self.experts * self.expert)
        return self.layers * self.attention_layer + dense + sparse + self.embedding + self.head

    def model_flops(self, tokens: float) -> float:
        """FLOPs of forward and backward over `tokens`, without any recomputation (MFU's measure).

        6 per token and parameter that multiplies it, 12·l·s·h for scores (all of them, as the
        papers count): 72Bslh²(1 + s/(6h) + V/(12lh)) of a GPT [Narayanan et al. 2021].
        """
        used = self.top_k + self.shared_experts
        matrices = self.layers * (
            self.attention_parameters or 2 * self.hidden * self.hidden * (1 + self.key_value_share)
        )
        matrices += (self.layers - self.moe_layers) * self.mlp
        matrices += self.moe_layers * (used * self.expert + self.hidden * self.experts)
        matrices += self.vocab * self.hidden
        return tokens * (6 * matrices + 12 * self.layers * self.sequence * self.hidden)

    @staticmethod
    def preset(name: str) -> Model:
        """One of `MODELS`; ValueError, with their names, for another."""
        if name not in MODELS:
            raise ValueError(f"unknown model {name!r}; known: {', '.join(MODELS)}")
        return MODELS[name]


@dataclass(frozen=True)
class Plan:
    """How a model is cut: dp·cp·pp·tp devices; ep divides dp·cp.

    sequence_parallel: activations between tensor-parallel regions are cut along the sequence, too.
    micro_batch: sequences that pass through the pipeline at once. micro_batches: how many of them
        a replica takes in a step, so a step trains dp·micro_batch·micro_batches sequences.
    chunks: virtual stages of a device (v; interleaved 1F1B where above 1).
    zero: stage 0 … 3. recomputation: "none", "selective" (scores only) or "full".
    Raises ValueError for counts below 1 and for other stages or words.
    """

    dp: int = 1
    pp: int = 1
    tp: int = 1
    cp: int = 1
    ep: int = 1
    sequence_parallel: bool = False
    micro_batch: int = 1
    micro_batches: int = 1
    chunks: int = 1
    zero: int = 0
    recomputation: Recomputation = "none"

    def __post_init__(self) -> None:
        for field in ("dp", "pp", "tp", "cp", "ep", "micro_batch", "micro_batches", "chunks"):
            _at_least(field, getattr(self, field), 1)
        if self.zero not in (0, 1, 2, 3):
            raise ValueError(f"zero={self.zero!r}: expected 0, 1, 2 or 3")
        if self.recomputation not in RECOMPUTATIONS:
            raise ValueError(
                f"recomputation={self.recomputation!r}: expected {', '.join(RECOMPUTATIONS)}"
            )

    @property
    def devices(self) -> int:
        """Devices that the plan needs."""
        return self.dp * self.cp * self.pp * self.tp

    @property
    def batch(self) -> int:
        """Sequences of a step."""
        return self.dp * self.micro_batch * self.micro_batches

    @property
    def replicas(self) -> int:
        """Devices that hold the same parameters (those of no expert): dp·cp."""
        return self.dp * self.cp

    def __str__(self) -> str:
        words = [f"dp {self.dp}", f"pp {self.pp}", f"tp {self.tp}"]
        words += [f"cp {self.cp}"] * (self.cp > 1) + [f"ep {self.ep}"] * (self.ep > 1)
        words += ["sp"] * self.sequence_parallel
        words += [f"{self.micro_batches} × {self.micro_batch}"]
        words += [f"{self.chunks} chunks"] * (self.chunks > 1) + [f"zero {self.zero}"]
        return f"{' '.join(words)} {self.recomputation}"


class Memory(NamedTuple):
    """Bytes of one device, by what they are for."""

    weights: float
    gradients: float
    optimizer: float
    activations: float

    @property
    def total(self) -> float:
        """All of them."""
        return self.weights + self.gradients + self.optimizer + self.activations


class StepTime(float):
    """Seconds of a step: a number, which may also carry where they go.

    parts: seconds by name ("compute", "bubble", "tp", "cp", "pp", "dp", "ep", "optimizer", …).
    traffic: bytes that a device sends in a step, by dimension. Both may stay empty.
    """

    parts: dict[str, float]
    traffic: dict[str, float]

    def __new__(
        cls,
        seconds: float,
        parts: dict[str, float] | None = None,
        traffic: dict[str, float] | None = None,
    ) -> StepTime:
        made = super().__new__(cls, seconds)
        made.parts, made.traffic = dict(parts or {}), dict(traffic or {})
        return made


class Ranked(NamedTuple):
    """A plan that fits."""

    plan: Plan
    memory: Memory
    seconds: float


class Refused(NamedTuple):
    """A plan that does not fit. kind: one of `REFUSALS`; reason: why, with the numbers."""

    plan: Plan
    kind: str
    reason: str


#: Why a plan is refused: it is for another number of devices; something cannot be divided; it
#: trains another number of tokens a step; it needs more memory than there is.
REFUSALS = ("product", "division", "batch", "memory")


class Ranking(NamedTuple):
    """What `plan` hands back: plans that fit, best first, and all others."""

    best: list[Ranked]
    refused: list[Refused]


@dataclass(frozen=True)
class Cluster:
    """`nodes` equal nodes of `devices_per_node` devices; rank r sits on device r.

    flops: FLOP/s of a device, dense 16-bit products. memory: its bytes; memory_bandwidth: theirs.
    intra_bandwidth, intra_latency: of a device's port inside the node. inter_bandwidth: bytes/s
    that one device has between nodes while all devices of its node send; inter_latency.
    """

    name: str
    nodes: int
    devices_per_node: int
    flops: float
    memory: float
    memory_bandwidth: float
    intra_bandwidth: float
    inter_bandwidth: float
    intra_latency: float = 3e-6
    inter_latency: float = 5e-6

    def __post_init__(self) -> None:
        for field in ("nodes", "devices_per_node"):
            _at_least(field, getattr(self, field), 1)
        for field in (
            "flops", "memory", "memory_bandwidth", "intra_bandwidth", "inter_bandwidth",
        ):  # fmt: skip
            value = getattr(self, field)
            if not value > 0:
                raise ValueError(f"{field}={value!r}: expected a number above 0")

    @property
    def devices(self) -> int:
        """Devices of the whole cluster."""
        return self.nodes * self.devices_per_node

    @property
    def usable_memory(self) -> float:
        """Bytes of a device that a plan may fill: a tenth is left to contexts, buffers and gaps."""
        return 0.9 * self.memory

    @staticmethod
    def preset(name: str, devices: int = 8) -> Cluster:
        """One of `CLUSTERS` with whole nodes for `devices` devices ("uniform": just so many).

        Raises ValueError for a name that is not known, and for counts below 1.
        """
        if name not in CLUSTERS:
            raise ValueError(f"unknown cluster {name!r}; known: {', '.join(CLUSTERS)}")
        _at_least("devices", devices, 1)
        one = CLUSTERS[name]
        if name == "uniform":
            return replace(one, devices_per_node=devices)
        return replace(one, nodes=math.ceil(devices / one.devices_per_node))


def _at_least(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name}={value!r}: expected a whole number, {least} or more")


def _named(models: Iterable[Model]) -> dict[str, Model]:
    return {model.name: model for model in models}


#: Models whose shapes are published [Brown et al. 2020; Llama team 2024; DeepSeek-AI 2024;
#: Narayanan et al. 2021]. The MLA of DeepSeek-V3: projections to 1,536 and 512 + 64, from there to
#: 128 heads of 192 and 256, and 128 × 128 back.
MODELS = _named(
    [
        Model("gpt3-175b", 96, 12288, 96, 51200, 2048),
        Model(
            "llama3-405b", 126, 16384, 128, 128256, 8192,
            ffn_hidden=53248, gated=True, kv_heads=8,
            tied=False, learned_positions=False, biases=False,
        ),
        Model(
            "deepseek-v3", 61, 7168, 128, 129280, 4096,
            ffn_hidden=18432, gated=True, tied=False, learned_positions=False, biases=False,
            experts=256, expert_hidden=2048, top_k=8, shared_experts=1, dense_layers=3,
            attention_parameters=7168 * (1536 + 576) + 128 * (1536 * 192 + 512 * 256 + 128 * 7168),
        ),
        Model("megatron-1t", 128, 25600, 160, 51200, 2048),
    ]
)  # fmt: skip

GB = 1e9

#: One node of each. Rates are those of the simulated cluster of the same name, and so are their
#: sources; memory is the data sheets'. gb200-nvl72: a rack is a node.
CLUSTERS = {
    one.name: one
    for one in [
        Cluster("uniform", 1, 8, 100e12, 80 * GB, 2e12, 50 * GB, 50 * GB, 5e-6, 5e-6),
        Cluster(
            "pcie-4090x8", 1, 8, 165.2e12, 24 * GB, 1.008e12, 25 * GB, 11.5 * GB / 8, 3e-6, 5e-6
        ),
        Cluster("dgx-a100", 1, 8, 312e12, 80 * GB, 2.039e12, 234.96 * GB, 24 * GB),
        Cluster("dgx-h100", 1, 8, 989.4e12, 80 * GB, 3.35e12, 370 * GB, 47 * GB),
        Cluster("h800-v3", 1, 8, 989.4e12, 80 * GB, 3.35e12, 160 * GB, 50 * GB),
        Cluster("gb200-nvl72", 1, 72, 2500e12, 186 * GB, 8e12, 770 * GB, 47 * GB),
    ]
}
