"""The cases of assignment 1: inputs, exact results, and how to judge what came back.

Everything here runs on the examiner's side; expected values are computed in float64 (complex128,
int64) from inputs that the student's process never hands back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from grader.checks.causes import Case, Needs, reduction_suspects, untouched_tail
from grader.checks.compare import assert_close
from grader.checks.framework import CheckFailed

Spec = tuple[torch.dtype, tuple[int, ...], bool]  # dtype, shape, strided

#: Odd tensors: every collective meets each of them.
SPECS: tuple[Spec, ...] = (
    (torch.float32, (16,), False),
    (torch.bfloat16, (33,), False),
    (torch.float32, (6, 5), True),
    (torch.int64, (1,), False),
    (torch.float16, (24,), True),
    (torch.float32, (0,), False),
    (torch.float64, (), False),
    (torch.complex64, (7,), False),
    (torch.int32, (3, 4), False),
    (torch.bool, (9,), False),
)
NUMBERS = tuple(spec for spec in SPECS if spec[0] != torch.bool)

#: Sub-groups of a world of six: global ranks in group order.
GROUP_WORLD = 6
GROUPS: tuple[tuple[int, ...], ...] = ((4, 1, 2), (3, 0), (5, 0, 3, 2), (2,))
WORLDS = (2, 3, 5, 8)


def random_tensor(rng: torch.Generator, spec: Spec, shape: Sequence[int] | None = None) -> Any:
    """Numbers of magnitude 0.5 to 2 (so that products keep theirs), large ones for int64.

    shape: another one than that of `spec`.
    """
    dtype, default, strided = spec
    size = tuple(default if shape is None else shape)
    if dtype == torch.bool:
        values = torch.rand(size, generator=rng) < 0.5
    elif not (dtype.is_floating_point or dtype.is_complex):
        limit = 1 << 40 if dtype == torch.int64 else 30  # more than a float32 holds
        values = torch.randint(1, limit, size, generator=rng, dtype=dtype)
        values = values * (1 - 2 * torch.randint(0, 2, size, generator=rng, dtype=dtype))
    else:
        exponents = torch.rand(size, generator=rng, dtype=torch.float64) * 2 - 1
        signs = 1 - 2 * torch.randint(0, 2, size, generator=rng)
        values = (2**exponents * signs).to(dtype)
        if dtype.is_complex:
            values = values * torch.complex(torch.tensor(0.6), torch.tensor(0.8))
    return with_strides(values) if strided else values


def with_strides(values: torch.Tensor) -> torch.Tensor:
    """The same values, not contiguous: transposed, or every second element."""
    if values.dim() >= 2:
        return values.transpose(0, 1).contiguous().transpose(0, 1)
    return values.repeat_interleave(2)[::2]


def filler(like: torch.Tensor) -> torch.Tensor:
    """A result tensor to be overwritten: same form and strides, values that no input has."""
    room = like.clone() if like.is_contiguous() else with_strides(like.contiguous())
    return room.fill_(True if like.dtype == torch.bool else 77)


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """In the dtype that expected values are computed in."""
    if tensor.dtype.is_complex:
        return tensor.to(torch.complex128)
    return tensor.to(torch.float64 if tensor.dtype.is_floating_point else torch.int64)


def traits_of(spec: Spec, members: int, ranks: object, *more: str) -> frozenset[str]:
    """What is true of a case with such tensors among so many ranks."""
    dtype, shape, strided = spec
    numel = int(torch.Size(shape).numel())
    found = {
        "one rank": members == 1,
        "sub-group": ranks is not None,
        "not a power of two": members & (members - 1) != 0,
        "strided": strided,
        "empty": numel == 0,
        "16-bit": dtype.itemsize == 2,
        "integer": not (dtype.is_floating_point or dtype.is_complex),
        "scalar": shape == (),
        "shorter than the world": 0 < numel < members,
    }
    return frozenset([name for name, holds in found.items() if holds] + list(more))


def ranks_of(count: int) -> str:
    """ "1 rank", "5 ranks"."""
    return f"{count} rank{'s' * (count > 1)}"


def label_of(spec: Spec, world: int, ranks: Sequence[int] | None, *more: str) -> str:
    """The case in words."""
    dtype, shape, strided = spec
    where = ranks_of(world) if ranks is None else f"group {list(ranks)}"
    form = f"{'strided ' * strided}{str(dtype).removeprefix('torch.')} {shape}"
    return ", ".join([where, *more, form])


def operations_for(spec: Spec) -> list[str]:
    """The reduce operations that mean something for a dtype."""
    dtype = spec[0]
    if dtype.is_complex:
        return ["SUM", "AVG", "PRODUCT"]
    return ["SUM", "MAX", "MIN", "PRODUCT"] + (["AVG"] if dtype.is_floating_point else [])


def op_traits(op: str) -> list[str]:
    """The traits of an operation."""
    return {"AVG": ["AVG"], "MAX": ["MAX or MIN"], "MIN": ["MAX or MIN"]}.get(
        op, ["PRODUCT"] if op == "PRODUCT" else []
    )


def expect_equal(
    got: object,
    expected: torch.Tensor,
    where: str,
    suspects: Sequence[tuple[torch.Tensor, str]] = (),
    cause: str | None = None,
) -> None:
    """What was moved and not computed is exact."""
    assert_close(
        got, wide(expected), dtype=expected.dtype, operations=0, where=where,
        suspects=[(wide(each), why) for each, why in suspects], cause=cause,
    )  # fmt: skip


def expect_unchanged(got: object, before: torch.Tensor, name: str, where: str, cause: str) -> None:
    """An argument still holds what it held."""
    expect_equal(got, before, f"{where}, argument `{name}` after the call", cause=cause)


def expect_reduced(
    got: object,
    op: str,
    inputs: Sequence[torch.Tensor],
    *,
    own: int,
    world: int,
    where: str,
    before: torch.Tensor | None = None,
    server: int | None = None,
) -> None:
    """The reduction of `inputs` (by group rank), within what rounding allows.

    own: the number among them of the rank that `got` comes from. before: what `got` held.
    server: the number of the rank that reduces for all, if one does.
    """
    contributions = [wide(tensor) for tensor in inputs]
    stacked = torch.stack(contributions)
    dtype, size = inputs[0].dtype, len(inputs)
    scale = None
    if op in ("SUM", "AVG"):
        expected = stacked.sum(0) if op == "SUM" else stacked.sum(0) / size
        scale = stacked.abs().to(torch.float64).sum(0) / (size if op == "AVG" else 1)
    elif op == "PRODUCT":
        expected = stacked.prod(0)
    else:
        expected = stacked.amax(0) if op == "MAX" else stacked.amin(0)
    # At most one rounding for each of the p - 1 combinations, one to divide, one to store. A
    # complex product rounds each part three times.
    operations = (size + 1) * (3 if dtype.is_complex else 1) if op not in ("MAX", "MIN") else 0
    if size == 1:
        operations = 0
    try:
        assert_close(
            got, expected, dtype=dtype, operations=operations, scale=scale, where=where,
            suspects=reduction_suspects(op, contributions, own, world, server),
        )  # fmt: skip
    except CheckFailed as failure:
        if failure.cause is None and isinstance(got, torch.Tensor) and got.dtype == dtype:
            failure.cause = _finer_cause(got, expected, before)
        raise


def _finer_cause(
    got: torch.Tensor, expected: torch.Tensor, before: torch.Tensor | None
) -> str | None:
    if before is not None and before.shape == got.shape:
        tail = untouched_tail(got, before)
        if tail is not None:
            return tail
    if not (got.dtype.is_floating_point or got.dtype.is_complex):
        error = (got.double() - expected.double()).abs()
        if bool((error <= 1e-4 * expected.double().abs()).all()):
            return "integers went through floating-point numbers, which cannot hold all of them"
    return None


def expect_new_memory(answer: dict[str, Any], results: Sequence[torch.Tensor], where: str) -> None:
    """Returned tensors share memory neither with the arguments nor with each other."""
    taken = {answer["arguments"]["tensor"].untyped_storage().data_ptr(): "the argument"}
    for number, result in enumerate(results):
        if not result.numel():
            continue
        key = result.untyped_storage().data_ptr()
        if key in taken:
            raise CheckFailed(
                f"{where}: result {number} is not a tensor of its own",
                cause=f"it shares memory with {taken[key]}: to write into one changes the other",
            )
        taken[key] = f"result {number}"


def lists_untouched(
    answer: dict[str, Any], name: str, before: Sequence[torch.Tensor], where: str
) -> None:
    """The caller's list still holds the caller's tensors, whatever is in them."""
    now, given = answer["arguments"][name], answer["given"][name]
    if len(now) != len(before):
        raise CheckFailed(
            f"{where}: `{name}` has {len(now)} tensors after the call, {len(before)} before",
            cause="the list itself was changed (pop, remove, append, sort)",
        )
    for index, (new, old) in enumerate(zip(now, given, strict=True)):
        same = isinstance(new, torch.Tensor) and (
            new.numel() == 0 or new.untyped_storage().data_ptr() == old.untyped_storage().data_ptr()
        )
        if not same:
            raise CheckFailed(
                f"{where}: `{name}[{index}]` is another tensor than the caller's",
                cause="new tensors were put into the list: write into those that stand there",
            )


def refusal(
    label: str,
    arguments: list[dict[str, Any]],
    names: Sequence[str],
    *,
    ranks: Sequence[int] | None = None,
    op: str | None = None,
) -> Case:
    """A call that must raise ValueError on every rank.

    names: what the message has to contain: the argument's name and both values, as text; of
    alternatives in one string, separated by "|", any.
    """

    def judge(answers: list[Any]) -> None:
        for rank, answer in enumerate(answers):
            if answer is None:
                continue
            expect_refusal(answer["error"], names, f"rank {rank}")

    return Case(label, arguments, judge, op=op, ranks=ranks, refused=True, must_refuse=True)


def expect_refusal(error: dict[str, str] | None, names: Sequence[str], where: str) -> None:
    """The error is a ValueError that contains all `names`."""
    if error is None:
        raise CheckFailed(
            f"{where}: expected ValueError, but the call came back as if all were well",
            cause="the argument is not checked",
        )
    if error["type"] != "ValueError":
        raise CheckFailed(
            f"{where}: expected ValueError, got {error['type']}: {error['message']}",
            cause="the argument is not checked: whatever fails first speaks",
        )
    missing = [n for n in names if not any(each in error["message"] for each in n.split("|"))]
    if missing:
        wanted = " and ".join(name.replace("|", " or ") for name in missing)
        raise CheckFailed(
            f"{where}: the message does not contain {wanted}: {error['message']!r}",
            cause="a message names the argument, its value, and what was expected",
        )


def everyone_needs(members: Sequence[int], numel: int) -> Needs:
    """Each rank's result depends on all ranks, unless there are no elements."""
    return {rank: set(members) for rank in members} if numel else {}


def needs_of(name: str, case: Case) -> Needs:
    """Whose tensors the ranks' results depend on in a case of a1.`name`; none for no elements."""
    members = case.members
    arguments = {rank: case.arguments[rank] for rank in members}
    if name == "barrier" or not members:
        return {}
    first = arguments[members[0]]
    key = "output" if name in ("scatter", "reduce_scatter") else "tensor"
    full = {rank for rank in members if arguments[rank][key].numel()}
    if name in ("broadcast", "scatter"):
        return {rank: {first["src"]} for rank in full}
    if name in ("gather", "reduce"):
        return {first["dst"]: full}
    if name == "all_gather":
        return dict.fromkeys(members, full)
    if name == "neighbour_exchange":
        following = [*members[1:], members[0]]
        return {
            rank: {members[place - 1], following[place]}
            for place, rank in enumerate(members)
            if full
        }
    return {rank: set(members) for rank in full}


#: (world, ranks, spec, root, number of the case) -> the case
Make = Callable[[int, Sequence[int] | None, Spec, int, int], Case]


def over_worlds(make: Make, specs: Sequence[Spec] = SPECS) -> list[Case]:
    """Cases over all worlds and roots of the default group, with every spec in turn."""
    places = [(world, root) for world in WORLDS for root in range(world)]
    return [
        make(world, None, specs[number % len(specs)], root, number)
        for number, (world, root) in enumerate(places)
    ]


def over_groups(make: Make, specs: Sequence[Spec] = SPECS) -> list[Case]:
    """Cases over sub-groups of permuted ranks and worlds of one rank; roots are global ranks."""
    cases = [make(1, None, specs[number], 0, number) for number in range(3)]
    for ranks in GROUPS:
        for root in ranks:
            cases.append(make(GROUP_WORLD, ranks, specs[len(cases) % 3], root, len(cases)))
    return cases
