"""Given: how training comes along: loss, tokens/s, MFU."""

from __future__ import annotations

import time

import torch

from .config import DTYPES, Process, TrainConfig
from .model import layer_flops

#: Dense FLOP/s of a GPU by a word of its name: (16-bit, 32-bit as TF32 would do it).
_GPUS = {
    "A100": (312e12, 156e12),
    "H100": (989.4e12, 494.7e12),
    "H200": (989.4e12, 494.7e12),
    "H800": (989.4e12, 494.7e12),
    "B200": (2250e12, 1125e12),
    "4090": (165.2e12, 82.6e12),
}


def peak_flops(device: torch.device, dtype: torch.dtype) -> float:
    """FLOP/s of dense products on `device`: of known GPUs the data sheet's, else measured."""
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
        for word, (narrow, wide) in _GPUS.items():
            if word in name and dtype != torch.float64:
                return narrow if dtype == torch.bfloat16 else wide
    size = 512 if device.type == "cpu" else 4096
    a = torch.ones(size, size, device=device, dtype=dtype)
    best = float("inf")
    for _ in range(20):
        before = time.perf_counter()
        float((a @ a)[0, 0])  # to read it is to wait for it
        best = min(best, time.perf_counter() - before)
    return 2 * size**3 / best


class Progress:
    """Prints a line for steps now and then, on the rank that is told to.

        step    20/100  loss 2.4143  norm 0.871  51234 tokens/s  MFU 12.3 %

    tokens/s of all ranks together, since the last line. MFU: the model's FLOPs (see `layer_flops`)
    ÷ what all devices could do in that time. On simulated ranks both are those of the host.
    """

    def __init__(self, config: TrainConfig, process: Process, prints: bool) -> None:
        self._config, self._prints = config, prints and not config.quiet
        self._every = max(config.steps // 20, 1)
        self._flops = sum(layer_flops(config))
        self._peak = float("inf")
        if self._prints:
            self._peak = process.world_size * peak_flops(process.device, DTYPES[config.dtype])
        self._begin, self._steps = time.perf_counter(), 0

    def say(self, line: str) -> None:
        """Print a line, if this rank prints."""
        if self._prints:
            print(line, flush=True)

    def step(self, number: int, loss: float, norm: float) -> None:
        """Step `number` (from 0) is done."""
        self._steps += 1
        done = number + 1
        if not self._prints or (done % self._every and done != self._config.steps):
            return
        now = time.perf_counter()
        tokens = self._steps * self._config.batch * self._config.sequence
        rate = tokens / max(now - self._begin, 1e-9)
        self._begin, self._steps = now, 0
        print(
            f"step {done:5}/{self._config.steps}  loss {loss:.4f}  norm {norm:.3f}  "
            f"{rate:.0f} tokens/s  MFU {100 * rate * self._flops / self._peak:.1f} %",
            flush=True,
        )
