"""Whether a layer that is cut computes what the dense one computes, and holds only its shards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from grader.checks import causes_a4 as causes
from grader.checks.a4_cases import CUTS, LayerCase, Step, expected_steps, share
from grader.checks.compare import assert_close
from grader.checks.framework import CheckFailed

#: Roundings to allow for: relative to the largest element, 4e-12 in float64.
OPERATIONS = 20_000
Suspects = Sequence[tuple[torch.Tensor, str]]


def expect(
    got: object,
    wanted: torch.Tensor,
    where: str,
    suspects: Callable[[], Suspects] = list,
    cause: str | None = None,
    dtype: torch.dtype = torch.float64,
    operations: int = OPERATIONS,
) -> None:
    """`got` is `wanted` up to rounding, relative to the largest element or 1.

    suspects: wrong answers, each with its cause; only asked for when `got` is wrong.
    """
    largest = wanted.abs().max().clamp(min=1) if wanted.numel() else torch.ones(())

    def compare(suspects: Suspects, cause: str | None) -> None:
        assert_close(
            got, wanted, dtype=dtype, operations=operations, scale=largest.expand(wanted.shape),
            where=where, suspects=suspects, cause=cause,
        )  # fmt: skip

    try:
        compare((), None)
    except CheckFailed:
        wrong = list(suspects())
        if isinstance(got, torch.Tensor) and got.shape != wanted.shape:
            cause = next((why for other, why in wrong if other.shape == got.shape), cause)
        try:
            compare(wrong, cause)
        except CheckFailed as failure:
            failure.cause = failure.cause or cause
            raise


def judge_layer(case: LayerCase, answers: Sequence[Any]) -> None:
    """Outputs and gradients of every step, and parameters after it. answers: by global rank."""
    steps = expected_steps(case)
    for number, wanted in enumerate(steps):
        for place, rank in enumerate(case.members):
            step = answers[rank]["steps"][number]
            where = f"{case.label}: " + (f"step {number + 1}, " if len(steps) > 1 else "")
            _judge_step(case, wanted, step, number, place, f"{where}rank {rank}")
    for rank in case.members:
        where = f"{case.label}: rank {rank}"
        if not answers[rank]["input_kept"]:
            raise CheckFailed(f"{where}: the input was changed", cause=causes.IN_PLACE)
        if not answers[rank]["dense_kept"]:
            raise CheckFailed(
                f"{where}: the dense module's parameters were changed",
                cause="shards are views of the dense weights: training writes through them",
            )


def _judge_step(
    case: LayerCase, wanted: Step, got: Mapping[str, Any], number: int, place: int, where: str
) -> None:
    expect(
        got["output"], share(wanted.output, case.leaves, place, case.size), f"{where}, output",
        lambda: causes.of_output(case, wanted, number, place),
    )  # fmt: skip
    if case.of_rank(case.members[place])["input_needs_gradient"]:
        assert wanted.input_gradient is not None
        own = share(wanted.input_gradient, case.enters, place, case.size)
        if got["input_gradient"] is None:
            raise CheckFailed(
                f"{where}: the input got no gradient",
                cause="a collective on its own is no part of autograd's graph",
            )
        expect(
            got["input_gradient"], own, f"{where}, gradient of the input",
            lambda: causes.of_input_gradient(case, wanted, number, place),
        )  # fmt: skip
    judge_parameters(case, wanted, got, number, place, where)


def judge_parameters(
    case: LayerCase, wanted: Step, got: Mapping[str, Any], number: int, place: int, where: str
) -> None:
    """Names, gradients, and values after the optimizer's step."""
    names = set(got["parameters"])
    if names != set(case.state):
        raise CheckFailed(
            f"{where}: the layer has parameters {sorted(names)}, expected {sorted(case.state)}",
            cause="parameters keep the dense module's names",
        )
    for name, gradient in wanted.gradients.items():
        found = got["gradients"][name]
        if gradient is None:
            if found is not None:
                raise CheckFailed(f"{where}: {name} does not require a gradient, but got one")
            continue
        if found is None:
            raise CheckFailed(
                f"{where}: {name} got no gradient",
                cause="a collective on its own is no part of autograd's graph",
            )
        own = case.shard(name, gradient, place)
        expect(
            found, own, f"{where}, gradient of {name}",
            partial(causes.of_gradient, case, wanted, number, name, gradient, place),
        )  # fmt: skip
    for name, value in wanted.after.items():
        expect(
            got["parameters"][name], case.shard(name, value, place),
            f"{where}, {name} after the optimizer's step",
        )  # fmt: skip


def judge_shards(case: LayerCase, answers: Sequence[Any]) -> dict[str, int]:
    """Each rank holds its shard of what is cut, in storage of its own; returns bytes by rank."""
    held = {}
    for rank in case.members:
        shards = answers[rank]["shards"]
        total = 0
        for name, value in case.state.items():
            where = f"{case.label}: rank {rank}, {name}"
            if name not in shards:
                raise CheckFailed(
                    f"{where} is missing: the layer's parameters are {sorted(shards)}",
                    cause="parameters keep the dense module's names",
                )
            expected = case.shard(name, value, 0)
            if tuple(shards[name]["shape"]) != tuple(expected.shape):
                whole = tuple(shards[name]["shape"]) == tuple(value.shape)
                raise CheckFailed(
                    f"{where}: expected shape {tuple(expected.shape)}, got "
                    f"{tuple(shards[name]['shape'])}",
                    cause=causes.NOT_CUT if whole and name in CUTS[case.layer] else None,
                )
            allowed = expected.numel() * expected.element_size()
            if shards[name]["storage"] > allowed:
                raise CheckFailed(
                    f"{where}: its storage has {shards[name]['storage']} bytes, expected {allowed}",
                    cause=causes.A_VIEW,
                )
            total += shards[name]["storage"]
        held[f"parameter_bytes_of_rank_{rank}"] = total
    return held


def expect_refused(case: LayerCase, answers: Sequence[Any], numbers: Sequence[int]) -> None:
    """Every rank raised a ValueError that names both numbers."""
    for rank in case.members:
        judge_refusal(answers[rank].get("error"), numbers, f"{case.label}: rank {rank}")


def judge_refusal(
    error: Mapping[str, Any] | None,
    numbers: Sequence[object],
    where: str,
    cause: str = causes.NOT_REFUSED,
) -> None:
    """The error is a ValueError whose message holds all the numbers (or words)."""
    if error is None:
        raise CheckFailed(
            f"{where}: expected a ValueError, but the call went through",
            cause=cause,
        )
    if "ValueError" not in error["bases"]:
        raise CheckFailed(
            f"{where}: expected a ValueError, got {error['type']}: {error['message'][:300]}",
            cause="the error is somebody else's: check sizes before they are used",
        )
    missing = [each for each in numbers if str(each) not in error["message"]]
    if missing:
        raise CheckFailed(
            f"{where}: the ValueError does not name {missing[0]}: {error['message'][:300]!r}",
            cause="a message that does not say what was given and what was expected",
        )
