"""Given: bytes to train on, the same for every rank whatever the layout."""

from __future__ import annotations

import random
from pathlib import Path

import torch

from .config import TrainConfig

_WHO = ("rank zero", "the last rank", "every rank", "a slow host", "the first stage", "one switch")
_WHEN = ("at step {n}", "after {n} steps", "in micro-batch {n}", "every {n} seconds", "for once")
_DOES = (
    "waits for {who}",
    "sends its gradients to {who}",
    "computes the next block while the ring turns",
    "keeps {n} activations alive",
    "asks {who} for its share of the weights",
    "hides the message behind a product",
    "counts {n} tokens and drops none",
    "fills the bubble with weight gradients",
    "saves a checkpoint and goes on",
)
_THEN = ("Nobody notices.", "The loss goes down.", "So the others idle.", "That is overlap.", "")


def write_text(nbytes: int = 1 << 17, seed: int = 0) -> bytes:
    """A diary of a cluster, as long as you like: `nbytes` of ASCII, the same for the same seed."""
    draw = random.Random(seed)
    written: list[str] = []
    length = 0
    while length < nbytes:
        who, when, does = draw.choice(_WHO), draw.choice(_WHEN), draw.choice(_DOES)
        line = f"{who} {when} {does}. {draw.choice(_THEN)}"
        line = line.replace("{n}", str(draw.randint(1, 64))).replace("{who}", draw.choice(_WHO))
        line = line[0].upper() + line[1:].strip() + "\n"
        written.append(line)
        length += len(line)
    return "".join(written).encode()[:nbytes]


def load_text(config: TrainConfig) -> torch.Tensor:
    """The bytes to train on, int64 (length,).

    Raises ValueError when the file holds fewer than sequence + 1 bytes.
    """
    text = Path(config.text).read_bytes() if config.text else write_text()
    if len(text) <= config.sequence:
        raise ValueError(
            f"text={config.text!r} holds {len(text)} bytes, expected more than sequence="
            f"{config.sequence}"
        )
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long()


def batch_of_step(
    text: torch.Tensor, config: TrainConfig, step: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets of a step's whole batch, both (sequence, batch) int64.

    Column i is sequence i of the batch, on whatever rank it will be. A target is the next byte.
    Drawn from (seed, step) alone, so that a run that goes on from a checkpoint needs no history.
    """
    generator = torch.Generator().manual_seed(config.seed * 1_000_003 + step)
    begins = torch.randint(len(text) - config.sequence, (config.batch,), generator=generator)
    rows = text[begins + torch.arange(config.sequence + 1).unsqueeze(1)]
    return rows[:-1].contiguous(), rows[1:].contiguous()
