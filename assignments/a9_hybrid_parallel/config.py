"""Given: what is trained and how it is cut, what `initialize` hands back, the command line."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import NamedTuple

import torch

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}
VOCABULARY = 256  # bytes


class Process(NamedTuple):
    """Where this process runs.

    rank, world_size: in the whole job. local_rank, local_world_size: on this machine.
    device: "cpu" or "cuda:N". cores: the CPU cores that the calling thread may run on.
    """

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    device: torch.device
    cores: tuple[int, ...]


@dataclass(frozen=True)
class TrainConfig:
    """A training run. dp·pp·tp ranks; ep divides dp.

    sp: sequence parallelism on top of tp. experts: in every block, 0 for a dense model; each token
    takes the top_k best (not with sp). batch: sequences of one step, of all ranks together; each
    replica takes its share in `microbatches` equal parts. checkpoint: a folder that all ranks see;
    "" for none. save_every: steps, 0 for only the end. resume: go on from the newest whole
    checkpoint, if there is one. timeout: seconds that a rank waits for another. text: a file to
    train on, "" for one that is written on the spot. quiet: print nothing.

    Raises ValueError for sizes that do not fit each other, naming both.
    """

    dp: int = 1
    pp: int = 1
    tp: int = 1
    ep: int = 1
    sp: bool = False
    layers: int = 4
    hidden: int = 64
    heads: int = 4
    experts: int = 0
    top_k: int = 2
    sequence: int = 64
    batch: int = 16
    microbatches: int = 2
    steps: int = 100
    learning_rate: float = 3e-3
    weight_decay: float = 0.1
    max_norm: float = 1.0
    seed: int = 0
    dtype: str = "float32"
    device: str = "auto"
    text: str = ""
    checkpoint: str = ""
    save_every: int = 0
    resume: bool = False
    timeout: float = 300.0
    quiet: bool = False

    def __post_init__(self) -> None:
        for name in (
            *("dp", "pp", "tp", "ep", "layers", "hidden", "heads", "top_k", "sequence", "batch"),
            *("microbatches", "steps"),
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: expected at least 1")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype={self.dtype!r}: expected one of {', '.join(DTYPES)}")
        self._divides("ep", "dp")
        self._divides("heads", "hidden")
        self._divides("tp", "heads")
        if self.sp:
            self._divides("tp", "sequence")
        if self.batch % (self.dp * self.microbatches):
            raise ValueError(
                f"batch={self.batch} sequences cannot be divided into dp={self.dp} × "
                f"microbatches={self.microbatches} equal parts"
            )
        if self.pp > self.layers + 2:
            raise ValueError(
                f"pp={self.pp} stages, but there are {self.layers + 2} layers (layers="
                f"{self.layers}, embedding and head)"
            )
        if self.experts:
            self._divides("ep", "experts")
            if self.sp:
                raise ValueError(f"sp=True with experts={self.experts}: use tp without sp")
            if self.top_k > self.experts:
                raise ValueError(f"top_k={self.top_k} of experts={self.experts}")
        elif self.ep > 1:
            raise ValueError(f"ep={self.ep}, but experts=0: there is nothing to share out")
        if self.resume and not self.checkpoint:
            raise ValueError("resume=True, but checkpoint='': from where?")

    def _divides(self, divisor: str, name: str) -> None:
        if getattr(self, name) % getattr(self, divisor):
            raise ValueError(
                f"{divisor}={getattr(self, divisor)} does not divide {name}={getattr(self, name)}"
            )

    @property
    def world_size(self) -> int:
        """Ranks that the layout needs."""
        return self.dp * self.pp * self.tp

    @property
    def layout(self) -> str:
        """For people: "dp 2, pp 2, tp 2 with sp"."""
        words = f"dp {self.dp}, pp {self.pp}, tp {self.tp}" + (" with sp" if self.sp else "")
        return words + (f", ep {self.ep}" if self.experts else "")


def parse(argv: Sequence[str]) -> TrainConfig:
    """The configuration that a command line describes: ``--dp 2 --sp --learning-rate 1e-3``."""
    parser = argparse.ArgumentParser(
        prog="train",
        description="Train a byte-level GPT on dp × pp × tp ranks.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    for field in fields(TrainConfig):
        assert field.default is not MISSING
        name = f"--{field.name.replace('_', '-')}"
        if isinstance(field.default, bool):
            parser.add_argument(name, action="store_true", help=" ")
        else:
            parser.add_argument(name, type=type(field.default), default=field.default, help=" ")
    return TrainConfig(**vars(parser.parse_args(argv)))


def main(train: Callable[[TrainConfig], list[float]], argv: Sequence[str] | None = None) -> int:
    """Run `train` from the command line; the exit status.

    What `train` says of its arguments, and of another rank's end (a RuntimeError raised from the
    backend's), is told in a line; any other error keeps its traceback.
    """
    try:
        config = parse(sys.argv[1:] if argv is None else argv)
    except ValueError as error:
        print(f"train: {error}", file=sys.stderr)
        return 2
    try:
        train(config)
    except ValueError as error:
        print(f"train: {error} ({_place(error)})", file=sys.stderr, flush=True)
        return 2
    except NotImplementedError as error:
        print(f"train: {error} is not implemented yet", file=sys.stderr, flush=True)
        return 1
    except RuntimeError as error:
        if error.__cause__ is None:
            raise
        print(f"train: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def _place(error: BaseException) -> str:
    """Where it was raised: "train.py, line 190"."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(last.filename).name}, line {last.lineno}"
