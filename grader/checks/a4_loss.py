"""Cases of the vocabulary-parallel loss, and what the loss of all logits comes to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional as F

from grader.checks.a4_cases import share
from grader.checks.causes_a4 import IN_PLACE
from grader.checks.compare import assert_close
from grader.checks.framework import CheckFailed
from grader.checks.world import Outcome, SimulatedCluster

TASK = "a4.vocab_parallel_cross_entropy"
#: Roundings from logits to a loss: an exponential and a logarithm of a sum over the vocabulary.
OPERATIONS = 200


@dataclass
class LossCase:
    """logits: (…, V), whole, in the dtype of the call. gradient: of the losses."""

    label: str
    world: int
    ranks: tuple[int, ...] | None
    logits: torch.Tensor
    target: torch.Tensor
    gradient: torch.Tensor
    options: dict[str, Any] = field(default_factory=dict)
    refused: bool = False

    @property
    def members(self) -> list[int]:
        """Global ranks, in group order."""
        return list(range(self.world) if self.ranks is None else self.ranks)

    def of_rank(self, rank: int) -> dict[str, Any]:
        """The case that the driver of a global rank gets."""
        place = self.members.index(rank) if rank in self.members else 0
        return {
            "logits": share(self.logits, -1, place, len(self.members)).clone(),
            "target": self.target.clone(),
            "gradient": self.gradient.clone(),
            "options": self.options,
            "ranks": None if self.ranks is None else list(self.ranks),
            "refused": self.refused,
        }


def make(
    rng: torch.Generator,
    world: int,
    ranks: tuple[int, ...] | None = None,
    *,
    lead: tuple[int, ...] = (5, 2),
    columns: int = 6,
    scale: float = 2.0,
    dtype: torch.dtype = torch.float64,
    owner: int | None = None,
    ignored: int | None = None,
    label: str = "",
    **options: Any,
) -> LossCase:
    """A random case. columns: of one rank. owner: the group rank that holds all targets. ignored:
    every third target is this number."""
    size = world if ranks is None else len(ranks)
    logits = torch.randn(*lead, columns * size, generator=rng, dtype=torch.float64) * scale
    low, high = (0, columns * size) if owner is None else (owner * columns, (owner + 1) * columns)
    target = torch.randint(low, high, lead, generator=rng)
    if ignored is not None:
        flat = target.view(-1)
        flat[::3] = ignored
        options["ignore_index"] = ignored
    gradient = torch.randn(*lead, generator=rng, dtype=torch.float64).to(dtype)
    where = f"{world} rank{'s' * (world > 1)}" if ranks is None else f"group {list(ranks)}"
    text = ", ".join(filter(None, [where, label]))
    return LossCase(text, world, ranks, logits.to(dtype), target, gradient, options)


def run(cluster: SimulatedCluster, cases: Sequence[LossCase]) -> Outcome:
    """Run cases of one world size in one world."""
    inputs = [
        {"task": TASK, "cases": [case.of_rank(rank) for case in cases]}
        for rank in range(cases[0].world)
    ]
    return cluster.run("a4:losses", inputs, task=TASK, allow=None)


def check(
    cluster: SimulatedCluster, cases: Sequence[LossCase], loss: bool = True, gradient: bool = True
) -> None:
    """Run cases, and judge losses, gradients or both."""
    for world in sorted({case.world for case in cases}):
        here = [case for case in cases if case.world == world]
        outcome = run(cluster, here)
        for number, case in enumerate(here):
            answers = [answers[number] for answers in outcome.outputs]
            if loss:
                judge_loss(case, answers)
            if gradient:
                judge_gradient(case, answers)


def exact(case: LossCase, logits: torch.Tensor, smoothing: float | None = None) -> torch.Tensor:
    """Losses of whole logits in float64, as F.cross_entropy."""
    vocabulary = logits.shape[-1]
    if smoothing is None:
        smoothing = case.options.get("label_smoothing", 0.0)
    losses = F.cross_entropy(
        logits.reshape(-1, vocabulary), case.target.reshape(-1), reduction="none",
        ignore_index=case.options.get("ignore_index", -100),
        label_smoothing=smoothing,
    )  # fmt: skip
    return losses.view(case.target.shape)


def judge_loss(case: LossCase, answers: Sequence[Mapping[str, Any]]) -> None:
    """Losses on every rank, and arguments as they were."""
    logits = case.logits.double()
    wanted = exact(case, logits)
    # Beside what the sum of exponentials rounds, eps·|logit| of the logits themselves.
    scale = 1 + logits.abs().amax(-1) + wanted.abs()
    for place, rank in enumerate(case.members):
        where = f"{case.label}: rank {rank}, loss"
        answer = answers[rank]
        assert_close(
            answer["loss"], wanted, dtype=case.logits.dtype, operations=_operations(case),
            scale=scale, where=where, suspects=loss_suspects(case, logits, wanted, place),
            cause=_overflow(answer["loss"]) or _counts_ignored(case, answer["loss"]),
        )  # fmt: skip
        whole = share(case.logits, -1, place, len(case.members))
        for name, got, before in (
            ("logits", answer["logits"], whole), ("target", answer["target"], case.target),
        ):  # fmt: skip
            if not torch.equal(got, before):
                raise CheckFailed(
                    f"{case.label}: rank {rank}: `{name}` was changed",
                    cause=IN_PLACE,
                )


def judge_gradient(case: LossCase, answers: Sequence[Mapping[str, Any]]) -> None:
    """Each rank's gradient of its own logits."""
    leaf = case.logits.double().requires_grad_()
    exact(case, leaf).backward(case.gradient.double())  # type: ignore[no-untyped-call]
    assert leaf.grad is not None
    size = len(case.members)
    scale = case.gradient.double().abs().unsqueeze(-1) * (
        1 + case.logits.double().abs().amax(-1, True)
    )
    for place, rank in enumerate(case.members):
        wanted = share(leaf.grad, -1, place, size)
        got = answers[rank]["input_gradient"]
        if got is None:
            raise CheckFailed(
                f"{case.label}: rank {rank}: the logits got no gradient",
                cause="the loss is cut off from the graph on this rank",
            )
        assert_close(
            got, wanted, dtype=case.logits.dtype, operations=_operations(case),
            scale=scale.expand(wanted.shape),
            where=f"{case.label}: rank {rank}, gradient of logits",
            suspects=gradient_suspects(case, wanted, place),
            cause=_overflow(got),
        )  # fmt: skip


def _operations(case: LossCase) -> int:
    return OPERATIONS if case.logits.dtype in (torch.float32, torch.float64) else 6


def _counts_ignored(case: LossCase, got: object) -> str | None:
    if not isinstance(got, torch.Tensor) or got.shape != case.target.shape:
        return None
    ignored = case.target == case.options.get("ignore_index", -100)
    return "ignored tokens have a loss" if bool((got[ignored] != 0).any()) else None


def _overflow(got: object) -> str | None:
    if isinstance(got, torch.Tensor) and not bool(torch.isfinite(got).all()):
        return "exp overflows: subtract the largest logit of all ranks first"
    return None


def loss_suspects(
    case: LossCase, logits: torch.Tensor, wanted: torch.Tensor, place: int
) -> list[tuple[torch.Tensor, str]]:
    """Wrong losses that people get."""
    size = len(case.members)
    columns = logits.shape[-1] // size
    smoothing = case.options.get("label_smoothing", 0.0)
    ignore = case.options.get("ignore_index", -100)
    mine = share(logits, -1, place, size)
    local = case.target - place * columns
    here = (local >= 0) & (local < columns)
    suspects = []
    if smoothing:
        suspects.append((exact(case, logits, 0.0), "`label_smoothing` is ignored"))
        plain = exact(case, logits, 0.0) * (1 - smoothing)
        logp = logits.log_softmax(-1)
        counted = case.target != ignore
        for what in (share(logp, -1, place, size).mean(-1), logp.sum(-1) / columns):
            local_mean = (plain - smoothing * what).masked_fill(~counted, 0.0)
            suspects.append(
                (local_mean, "smoothing over this rank's vocabulary, not the whole one")
            )
    if size > 1:
        at = mine.gather(-1, local.clamp(0, columns - 1).unsqueeze(-1)).squeeze(-1)
        lse = logits.logsumexp(-1)
        own = mine.logsumexp(-1) - at
        suspects += [
            (own, "the loss of this rank's logits alone: nothing was summed over the ranks"),
            (lse - at * here, "the target's logit is missing on ranks that do not hold it"),
        ]
        indices = case.target.clamp(0, logits.shape[-1] - 1).unsqueeze(-1)
        everyone = torch.zeros_like(at)
        for other in range(size):
            part = share(logits, -1, other, size)
            at_other = (case.target - other * columns).clamp(0, columns - 1).unsqueeze(-1)
            everyone += part.gather(-1, at_other).squeeze(-1)
        suspects.append((lse - everyone, "logits of ranks without the target are added, too"))
        owns = [part - part.amax(-1, keepdim=True) for part in logits.chunk(size, -1)]
        mixed = torch.cat(owns, -1)
        mixed_loss = mixed.exp().sum(-1).log() - mixed.gather(-1, indices).squeeze(-1)
        why = "each rank subtracts its own largest logit: exponentials of ranks do not add up"
        suspects.append((mixed_loss, why))
        if (case.target == ignore).any():
            kept = lse - logits.gather(-1, indices).squeeze(-1)
            suspects.append((kept, "ignored tokens have a loss"))
            nothing = torch.where(case.target == ignore, lse, kept)
            suspects.append((nothing, "ignored tokens have a loss"))
    return suspects


def gradient_suspects(
    case: LossCase, wanted: torch.Tensor, place: int
) -> list[tuple[torch.Tensor, str]]:
    """Wrong gradients that people get."""
    size = len(case.members)
    columns = wanted.shape[-1]
    local = (case.target - place * columns).unsqueeze(-1)
    here = (local >= 0) & (local < columns)
    gradient = case.gradient.double().unsqueeze(-1)
    mine = share(case.logits.double().softmax(-1), -1, place, size)
    counted = (case.target != case.options.get("ignore_index", -100)).unsqueeze(-1)
    everywhere = torch.zeros_like(wanted).scatter_(-1, local.clamp(0, columns - 1), 1.0)
    return [
        (wanted * here, "the gradient is lost on shards that do not hold the target"),
        (mine * gradient, "the target's −1 is missing"),
        (mine * gradient * counted, "the target's −1 is missing"),
        ((mine - everywhere) * gradient * counted, "−1 also where the target is another rank's"),
        (wanted * size, "the gradient is summed over ranks that all have the same loss"),
        (wanted / size, "the gradient is averaged over the ranks"),
        ((mine - everywhere * here) * gradient, "ignored tokens have a gradient"),
    ]
