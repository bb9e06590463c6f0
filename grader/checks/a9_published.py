"""Published step times: Narayanan et al. 2021, Table 1 and Table 2, on A100s of 80 GB.

Micro-batches and virtual stages are those of the scripts published with the paper.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from grader.checks.a9_memory import model, plan

GB = 1e9
SEQUENCE, VOCAB = 2048, 51200

A100: dict[str, Any] = {
    "name": "dgx-a100", "nodes": 1, "devices_per_node": 8, "flops": 312e12, "memory": 80 * GB,
    "memory_bandwidth": 2.039e12, "intra_bandwidth": 234.96 * GB, "inter_bandwidth": 24 * GB,
    "intra_latency": 3e-6, "inter_latency": 5e-6,
}  # fmt: skip


class Row(NamedTuple):
    """A measurement: TFLOP/s of a GPU, counted with the recomputed forward."""

    name: str
    model: dict[str, Any]
    plan: dict[str, Any]
    tflops: float

    @property
    def devices(self) -> int:
        """GPUs."""
        return int(self.plan["dp"] * self.plan["pp"] * self.plan["tp"])

    @property
    def case(self) -> dict[str, Any]:
        """What `step_time` is asked."""
        return {
            "model": self.model,
            "plan": self.plan,
            "cluster": A100 | {"nodes": -(-self.devices // 8)},
        }

    @property
    def seconds(self) -> float:
        """The time of a step that this is: 96·B·s·l·h²·(1 + s/(6h) + V/(16lh)) FLOPs."""
        layers, hidden = self.model["layers"], self.model["hidden"]
        batch = self.plan["dp"] * self.plan["micro_batch"] * self.plan["micro_batches"]
        flops = 96 * batch * SEQUENCE * layers * hidden**2
        flops *= 1 + SEQUENCE / (6 * hidden) + VOCAB / (16 * layers * hidden)
        return float(flops / self.devices / (self.tflops * 1e12))


def gpt(layers: int, hidden: int, heads: int) -> dict[str, Any]:
    """A GPT as the paper trains it."""
    return model(layers=layers, hidden=hidden, heads=heads, vocab=VOCAB, sequence=SEQUENCE)


def _megatron(
    size: str, shape: tuple[int, int, int], tp: int, pp: int, gpus: int, batch: int,
    micro_batch: int, chunks: int, tflops: float,
) -> Row:  # fmt: skip
    dp = gpus // (tp * pp)
    cut = plan(
        dp=dp, pp=pp, tp=tp, micro_batch=micro_batch, chunks=chunks, recomputation="full",
        micro_batches=batch // (dp * micro_batch),
    )  # fmt: skip
    return Row(f"{size}B on {gpus} GPUs", gpt(*shape), cut, tflops)


MEGATRON = [
    _megatron("1.7", (24, 2304, 24), 1, 1, 32, 512, 16, 1, 137),
    _megatron("3.6", (30, 3072, 32), 2, 1, 64, 512, 16, 1, 138),
    _megatron("7.5", (36, 4096, 32), 4, 1, 128, 512, 16, 1, 142),
    _megatron("18.4", (40, 6144, 48), 8, 1, 256, 1024, 8, 1, 135),
    _megatron("39.1", (48, 8192, 64), 8, 2, 512, 1536, 4, 1, 138),
    _megatron("145.6", (80, 12288, 96), 8, 8, 1536, 2304, 2, 2, 148),
    _megatron("529.6", (105, 20480, 128), 8, 35, 2520, 2520, 1, 3, 163),
    _megatron("1008", (128, 25600, 160), 8, 64, 3072, 3072, 1, 1, 163),
]


def _zero3(
    size: str, shape: tuple[int, int, int], gpus: int, micro_batch: int, tflops: float
) -> Row:
    cut = plan(dp=gpus, micro_batch=micro_batch, zero=3, recomputation="full")
    return Row(f"{size}B with ZeRO-3 on {gpus} GPUs", gpt(*shape), cut, tflops)


ZERO3 = [
    _zero3("174.6", (96, 12288, 96), 384, 4, 144),
    _zero3("174.6", (96, 12288, 96), 768, 2, 88),
    _zero3("174.6", (96, 12288, 96), 1536, 1, 44),
    _zero3("529.6", (105, 20480, 128), 640, 4, 138),
    _zero3("529.6", (105, 20480, 128), 1120, 2, 98),
    _zero3("529.6", (105, 20480, 128), 2240, 1, 48),
]
