"""Whether a training came out as one process's, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from grader.checks import causes_a3 as causes
from grader.checks.a3_cases import Expected, Training, expected_steps, operations
from grader.checks.compare import assert_close
from grader.checks.framework import CheckFailed


def judge_replicas(case: Training, answers: Sequence[Any]) -> None:
    """Start, losses, gradients and parameters of every step. answers: by global rank."""
    members = case.members
    mine = [answers[rank] for rank in members]
    expected = expected_steps(case)
    judge_start(case, answers)
    for number in range(len(case.batches)):
        for place, rank in enumerate(members):
            where = f"{case.label}: step {number + 1}, rank {rank}"
            step, wanted = mine[place]["steps"][number], expected[number]
            _judge_loss(case, step["loss"], wanted.losses[place], where)
            for name, gradient in wanted.gradients.items():
                local = [each[name] for each in wanted.local]
                try:
                    _judge_gradient(
                        case, step["gradients"][name], gradient, local, place, number, mine,
                        f"{where}, gradient of {name}",
                    )  # fmt: skip
                except CheckFailed as failure:
                    if failure.cause == causes.NOT_AVERAGED and _hold_up(wanted):
                        failure.cause = causes.NEVER_SENT
                    raise
            judge_frozen(step["gradients"], wanted.gradients, where)


def _hold_up(wanted: Expected) -> bool:
    """Whether backward reaches no gradient of some parameter on some rank."""
    return any(gradient is None for each in wanted.local for gradient in each.values())


def judge_start(case: Training, answers: Sequence[Any]) -> None:
    """Parameters and buffers after wrapping are those of the group's first rank, exactly."""
    for place, rank in enumerate(case.members):
        for name, value in case.states[0].items():
            own = case.states[place][name]
            kind = "buffer" if name in ("shift", "seen", "mask") else "parameter"
            cause = None
            if kind == "buffer":
                cause = "buffers must be broadcast, too"
            got = answers[rank]["start"][name]
            if got.dtype.is_floating_point:
                suspects = [(own.double(), f"the {kind} is still the rank's own: not broadcast")]
                last = case.states[-1][name].double()
                suspects.append((last, "the last rank's values were broadcast, not the first's"))
                suspects += [
                    (other[name].double(), f"group rank {n} was the source, not group rank 0")
                    for n, other in enumerate(case.states)
                ]
            else:
                suspects = [(own, f"the {kind} is still the rank's own: not broadcast")]
            assert_close(
                got, value.to(torch.float64) if value.dtype.is_floating_point else value,
                dtype=value.dtype, operations=0, cause=cause, suspects=suspects,
                where=f"{case.label}: rank {rank}, {kind} {name} after wrapping",
            )  # fmt: skip


def _judge_loss(
    case: Training, got: object, wanted: torch.Tensor, where: str, cause: str | None = None
) -> None:
    assert_close(
        got, wanted.double(), dtype=torch.float64, operations=operations(torch.float64, case.model),
        where=f"{where}, loss",
        cause=cause or "the replicas no longer hold the parameters that one process would",
    )  # fmt: skip


def _judge_gradient(
    case: Training,
    got: object,
    wanted: torch.Tensor | None,
    local: Sequence[torch.Tensor | None],
    place: int,
    step: int,
    answers: Sequence[Mapping[str, Any]],
    where: str,
) -> None:
    if wanted is None:
        if got is not None:
            raise CheckFailed(
                f"{where}: expected None, since no rank used the parameter, got a tensor",
                cause=causes.UNUSED_IS_ZERO,
            )
        return
    if got is None:
        used = sum(each is not None for each in local)
        raise CheckFailed(
            f"{where}: expected the average over all ranks ({used} of {len(local)} used the "
            f"parameter), got None",
            cause=causes.UNUSED_IS_NONE,
        )
    suspects = [
        (value.double(), cause)
        for value, cause in causes.gradient_suspects(local, place, case.world, wanted)
    ]
    magnitude = torch.stack([each.double().abs() for each in local if each is not None]).sum()
    try:
        assert_close(
            got, wanted.double(), dtype=wanted.dtype,
            operations=operations(wanted.dtype, case.model), scale=magnitude.expand(wanted.shape),
            where=where, suspects=suspects,
            cause="the gradient is not the average of the ranks' gradients",
        )  # fmt: skip
    except CheckFailed as failure:
        if failure.cause == causes.NOT_AVERAGED and _later_agree(answers, step):
            failure.cause = causes.AVERAGES_PARAMETERS
        raise


def _later_agree(answers: Sequence[Mapping[str, Any]], step: int) -> bool:
    """Whether parameters are equal at a later step, though the gradients differ at this one."""
    later = step + 1
    return later < len(answers[0]["steps"]) and causes.parameters_agree(answers, later)


def judge_frozen(
    got: Mapping[str, torch.Tensor | None], trainable: Mapping[str, Any], where: str
) -> None:
    """Frozen parameters have no gradient."""
    for name, gradient in got.items():
        if name not in trainable and gradient is not None:
            raise CheckFailed(
                f"{where}: expected no gradient for {name}, which is frozen, got a tensor",
                cause="requires_grad is ignored",
            )


def judge_sharded(case: Training, answers: Sequence[Any]) -> None:
    """Losses step by step, and full state dicts before and after. answers: by global rank."""
    expected = expected_steps(case)
    for place, rank in enumerate(case.members):
        answer = answers[rank]
        where = f"{case.label}: rank {rank}"
        for number in range(len(case.batches)):
            wanted = expected[number].losses[place]
            _judge_loss(
                case,
                answer["steps"][number]["loss"],
                wanted,
                f"{case.label}: step {number + 1}, rank {rank}",
                _loss_cause(number),
            )
        if answer["after"] is not None:
            judge_state(case, answer["after"], expected[-1], f"{where}, gather_full_state_dict()")


def _loss_cause(number: int) -> str:
    if number == 0:
        return "forward did not see the whole parameters"
    return "the update went wrong: gradients not averaged, or written to the wrong shards"


def judge_state(
    case: Training, got: Any, wanted: Expected, where: str, exact: bool = False
) -> None:
    """A full state dict has the unwrapped module's names, shapes and values."""
    if not isinstance(got, dict) or list(got) != list(wanted.before):
        names = list(got) if isinstance(got, dict) else type(got).__name__
        strange = [n for n in names if n not in wanted.before] if isinstance(got, dict) else []
        cause = (
            "the keys hold the wrappers' names: remove what wrapping put in" if strange else None
        )
        raise CheckFailed(
            f"{where}: expected the keys {list(wanted.before)}, got {names}", cause=cause
        )
    for name, value in wanted.before.items():
        scale = value.double().abs().max() if value.numel() else value.double().sum()
        assert_close(
            got[name], value.double() if value.dtype.is_floating_point else value,
            dtype=value.dtype, operations=0 if exact else operations(value.dtype, case.model),
            scale=scale.expand(value.shape), where=f"{where}, {name}",
            cause="the parameter is not what one process's training makes of it",
        )  # fmt: skip
