"""How calls of `clip_grad_norm` are made and judged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from grader.checks import causes_a9 as causes
from grader.checks.compare import error_factor
from grader.checks.framework import CheckFailed, SolutionError
from grader.checks.world import SimulatedCluster as Cluster


class Clip:
    """One call on all ranks of a group: gradients by member, and what must come out."""

    def __init__(
        self,
        label: str,
        sharded: Sequence[Sequence[torch.Tensor | None]],
        replicated: Sequence[torch.Tensor | None],
        max_norm: float,
        ranks: Sequence[int] | None = None,
    ) -> None:
        self.label, self.sharded, self.replicated = label, sharded, replicated
        self.max_norm = max_norm
        self.ranks = None if ranks is None else list(ranks)

    def inputs(self, rank: int) -> dict[str, Any]:
        """What the driver takes on a global rank."""
        common = {"max_norm": self.max_norm, "ranks": self.ranks}
        place = rank if self.ranks is None else (*self.ranks, rank).index(rank)
        if place >= len(self.sharded):
            return common | {"sharded": [], "replicated": []}
        return common | {"sharded": list(self.sharded[place]), "replicated": list(self.replicated)}

    def squares(self) -> tuple[list[float], float]:
        """Sums of squares: of each member's shards, and of what all have."""
        own = [sum(map(_square, shards)) for shards in self.sharded]
        return own, sum(map(_square, self.replicated))

    @property
    def norm(self) -> float:
        """Of the one model that the group holds."""
        own, shared = self.squares()
        return math.sqrt(sum(own) + shared)


def _square(gradient: torch.Tensor | None) -> float:
    return 0.0 if gradient is None else float(gradient.double().square().sum())


def run_clips(cluster: Cluster, clips: Sequence[Clip], world: int, **options: Any) -> Any:
    """The outcome of all calls on `world` ranks."""
    inputs = [{"cases": [clip.inputs(rank) for clip in clips]} for rank in range(world)]
    return cluster.run("a9:clips", inputs, task="a9.clip_grad_norm", allow=None, **options)


def judge_clip(clip: Clip, answers: Sequence[dict[str, Any] | None]) -> None:
    """The norm on every member, the same bits, and all gradients scaled once."""
    order = range(len(clip.sharded)) if clip.ranks is None else clip.ranks
    norm = clip.norm
    count = sum(g.numel() for shards in clip.sharded for g in shards if g is not None)
    count += sum(g.numel() for g in clip.replicated if g is not None)
    # Each square, sum and root in float32 at worst; the error of the sum is halved by the root.
    allowed = error_factor(torch.float32, count + 16) * norm
    first = None
    for place, rank in enumerate(order):
        answer = answers[rank]
        where = f"{clip.label}: rank {rank}"
        if answer is None or "error" in answer:
            error = answer["error"] if answer else {"type": "no answer", "message": "", "where": ""}
            raise SolutionError(
                f"{where}: {error['type']}: {error['message']} (at {error['where']})"
            )
        got = answer["norm"]
        if got is None:
            raise CheckFailed(f"{where} returned {answer['type']}, expected the norm, {norm:.7g}",
                              cause=causes.NO_NORM)  # fmt: skip
        if not abs(got - norm) <= allowed:
            raise CheckFailed(
                f"{where} returned {got:.9g}, expected {norm:.9g}",
                cause=causes.wrong_norm(got, clip.squares(), place),
            )
        first = got if first is None else first
        if got != first:
            raise CheckFailed(
                f"{where} returned {got!r}, rank {order[0]} returned {first!r}: expected the same "
                f"bits on all ranks",
                cause="ranks add up in different orders",
            )
        if answer["changed"]:
            raise CheckFailed(f"{where}: parameters were changed, expected their gradients only")
        _judge_scaled(clip, where, place, answer)


def _judge_scaled(clip: Clip, where: str, place: int, answer: dict[str, Any]) -> None:
    norm = clip.norm
    lowest = min(1.0, clip.max_norm / (norm + 1e-6)) if norm else 1.0
    highest = min(1.0, clip.max_norm / norm) if norm else 1.0
    for name, gradients in (("sharded", clip.sharded[place]), ("replicated", clip.replicated)):
        for number, (before, after) in enumerate(zip(gradients, answer[name], strict=True)):
            what = f"{where}: the gradient of {name}[{number}]"
            if before is None:
                if after is not None:
                    raise CheckFailed(f"{what} was None, and is a tensor now")
                continue
            if after is None or after.dtype != before.dtype or after.shape != before.shape:
                raise CheckFailed(f"{what} is not the tensor it was")
            wide, got = before.double(), after.double()
            # The factor and the product are rounded; a 16-bit gradient may meet a 16-bit factor.
            slack = error_factor(before.dtype, 4) + error_factor(torch.float32, 32)
            low, high = wide.abs() * lowest * (1 - slack), wide.abs() * highest * (1 + slack)
            wrong = (got.abs() < low) | (got.abs() > high) | (got.sign() * wide.sign() < 0)
            if bool(wrong.any()):
                at = int(wrong.flatten().nonzero()[0])
                came, was = float(got.flatten()[at]), float(wide.flatten()[at])
                raise CheckFailed(
                    f"{what}: element {at} was {was:.7g} and is {came:.7g} now, expected "
                    f"{was * highest:.7g} (× {highest:.6g})",
                    cause=causes.wrong_factor(
                        came / was if was else 0.0, clip.max_norm, clip.squares(), place, name
                    ),
                )
