"""The cases of assignment 2: inputs, exact results, and how to judge what came back.

As in `a1_cases`, everything here runs on the examiner's side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from grader.checks.a1_cases import (
    Spec,
    everyone_needs,
    expect_equal,
    expect_reduced,
    expect_unchanged,
    filler,
    label_of,
    op_traits,
    random_tensor,
    refusal,
    traits_of,
    wide,
    with_strides,
)
from grader.checks.causes import Case
from grader.checks.causes_a2 import unreduced_elements, wrong_chunks
from grader.checks.compare import assert_same_bits
from grader.checks.framework import CheckFailed

FLOAT = torch.float32

#: Worlds of all checks but those of `hierarchical_all_reduce`.
WORLDS = (2, 3, 4, 5, 8)

#: Sub-groups of a world of five: global ranks in group order.
GROUPS: tuple[tuple[int, ...], ...] = ((4, 1, 2), (3, 0), (2, 0, 4, 1), (2,))

#: Tensors that an all-reduce meets, dtype, shape and layout, each with an operation.
REDUCTIONS: tuple[tuple[Spec, str], ...] = (
    ((torch.float32, (24,), False), "SUM"),
    ((torch.float32, (13,), False), "SUM"),
    ((torch.float32, (5, 7), False), "AVG"),
    ((torch.float64, (2,), False), "SUM"),
    ((torch.bfloat16, (33,), False), "SUM"),
    ((torch.float16, (30,), False), "AVG"),
    ((torch.int64, (11,), False), "PRODUCT"),
    ((torch.float32, (0,), False), "SUM"),
    ((torch.float32, (17,), False), "MAX"),
    ((torch.int32, (3, 4), False), "MIN"),
    ((torch.float64, (), False), "AVG"),
    ((torch.complex64, (9,), False), "SUM"),
    ((torch.float32, (6, 5), True), "SUM"),
    ((torch.bfloat16, (31,), True), "AVG"),
)

#: What `output` of a reduce-scatter, and `tensor` of an all-gather, may be.
CHUNKS: tuple[tuple[Spec, str], ...] = (
    ((torch.float32, (4,), False), "SUM"),
    ((torch.float32, (1,), False), "MAX"),
    ((torch.float32, (3, 2), False), "AVG"),
    ((torch.bfloat16, (9,), False), "SUM"),
    ((torch.int64, (2, 3), False), "PRODUCT"),
    ((torch.float16, (3, 4), True), "AVG"),
    ((torch.complex64, (5,), False), "SUM"),
    ((torch.float32, (0, 3), False), "SUM"),
    ((torch.float64, (7,), False), "MIN"),
    ((torch.float32, (6,), True), "SUM"),
)


def twin(tensor: torch.Tensor) -> torch.Tensor:
    """The same values in the same layout, in memory of their own."""
    return tensor.clone() if tensor.is_contiguous() else with_strides(tensor.contiguous())


def all_reduce_case(
    rng: torch.Generator,
    world: int,
    ranks: Sequence[int] | None,
    spec: Spec,
    op: str,
    *,
    bits: bool = False,
    **options: Any,
) -> Case:
    """`tensor` is reduced on all ranks, in place; with `bits` to the same bits.

    options: further keyword arguments of the student's function. A tensor that is not contiguous
    may also be refused, by all ranks.
    """
    members = list(range(world) if ranks is None else ranks)
    inputs = {rank: random_tensor(rng, spec) for rank in members}
    arguments = [
        {"tensor": inputs[rank], **options} if rank in inputs else {} for rank in range(world)
    ]
    words = [op, *(f"{name}={value}" for name, value in options.items())]
    traits = traits_of(spec, len(members), ranks, *op_traits(op))
    label = label_of(spec, world, ranks, *words)
    return _reduction(label, arguments, inputs, members, spec, op, ranks, traits, bits)


def hierarchical_case(
    rng: torch.Generator,
    nodes: Sequence[Sequence[int]],
    spec: Spec,
    op: str,
    *,
    bits: bool = False,
) -> Case:
    """The same over two levels. nodes: global ranks of every node; all ranks take part."""
    world = sum(map(len, nodes))
    inputs = {rank: random_tensor(rng, spec) for rank in range(world)}
    given = [list(node) for node in nodes]
    arguments = [{"tensor": inputs[rank], "nodes": given} for rank in range(world)]
    traits = traits_of(spec, world, None, *op_traits(op))
    label = label_of(spec, world, None, f"nodes {given}", op)
    k, g = len(nodes), len(nodes[0])
    divisors = (
        (k, "the sum was divided by the number of nodes, not by that of all ranks"),
        (g, "the sum was divided by the number of ranks of a node, not by that of all ranks"),
        (g * g * k, "the sum was divided twice inside the node"),
        (g * k * k, "the sum was divided twice between the nodes"),
    )
    members = list(range(world))
    return _reduction(label, arguments, inputs, members, spec, op, None, traits, bits, divisors)


def _reduction(
    label: str,
    arguments: list[dict[str, Any]],
    inputs: dict[int, torch.Tensor],
    members: list[int],
    spec: Spec,
    op: str,
    ranks: Sequence[int] | None,
    traits: frozenset[str],
    bits: bool,
    divisors: Sequence[tuple[int, str]] = (),
) -> Case:
    contributions = [inputs[rank] for rank in members]

    def judge(answers: list[Any]) -> None:
        if _refused_by_all([answers[rank] for rank in members], members, spec[2]):
            return
        results = []
        for place, rank in enumerate(members):
            results.append(answers[rank]["arguments"]["tensor"])
            expect_reduction(
                results[-1], op, contributions, place, len(answers), f"rank {rank}", divisors
            )
        if bits:
            assert_same_bits(results, ranks=members)

    needs = everyone_needs(members, contributions[0].numel())
    return Case(
        label, arguments, judge, op=op, ranks=ranks, traits=traits, refused=spec[2], needs=needs
    )


def expect_reduction(
    got: Any,
    op: str,
    inputs: Sequence[torch.Tensor],
    own: int,
    world: int,
    where: str,
    divisors: Sequence[tuple[int, str]] = (),
) -> None:
    """`expect_reduced` in place, which also knows what chunks and levels can do wrong.

    divisors: wrong ones that people divide the sum by for AVG, each with its cause.
    """
    before = inputs[own]
    try:
        expect_reduced(got, op, inputs, own=own, world=world, where=where, before=before)
    except CheckFailed as failure:
        if isinstance(got, torch.Tensor) and op in ("SUM", "AVG"):
            total = torch.stack([wide(each) for each in inputs]).sum(0)
            kept = unreduced_elements(got, total, before, len(inputs))
            failure.cause = wrong_chunks(got, total, inputs) or kept or failure.cause
            for divisor, cause in divisors if op == "AVG" else ():
                if divisor > 1 and torch.allclose(wide(got) * divisor, total, rtol=0.01):
                    failure.cause = cause
        raise


def _refused_by_all(answers: list[Any], members: list[int], strided: bool) -> bool:
    """A strided tensor may be refused, but then on all ranks."""
    refused = [rank for rank, answer in zip(members, answers, strict=True) if answer["error"]]
    if refused and len(refused) < len(members):
        error = answers[members.index(refused[0])]["error"]
        raise CheckFailed(
            f"rank {refused[0]} raised {error['type']}: {error['message']}, others did not",
            cause="an argument is refused by all ranks, or by none",
        )
    return strided and bool(refused)


def reduce_scatter_case(
    rng: torch.Generator, world: int, ranks: Sequence[int] | None, spec: Spec, op: str
) -> Case:
    """Rank i gets the reduction of chunk i, and `tensor` stays as it is. spec: of `output`."""
    members = list(range(world) if ranks is None else ranks)
    size = len(members)
    whole = (size * spec[1][0], *spec[1][1:])
    inputs = {rank: random_tensor(rng, spec, whole) for rank in members}
    outputs = {rank: filler(random_tensor(rng, spec)) for rank in members}
    arguments = [
        {"output": outputs[rank], "tensor": inputs[rank]} if rank in inputs else {}
        for rank in range(world)
    ]
    chunks = [inputs[rank].tensor_split(size) for rank in members]

    def judge(answers: list[Any]) -> None:
        if _refused_by_all([answers[rank] for rank in members], members, spec[2]):
            return
        for place, rank in enumerate(members):
            after, where = answers[rank]["arguments"], f"rank {rank}"
            _expect_chunk(after["output"], op, chunks, place, world, where)
            expect_unchanged(
                after["tensor"], inputs[rank], "tensor", where,
                "partial results are accumulated in the caller's tensor",
            )  # fmt: skip

    label = label_of(spec, world, ranks, op, "output")
    traits = traits_of(spec, size, ranks, *op_traits(op))
    needs = everyone_needs(members, chunks[0][0].numel())
    return Case(
        label, arguments, judge, op=op, ranks=ranks, traits=traits, refused=spec[2], needs=needs
    )


def _expect_chunk(
    got: Any, op: str, chunks: Sequence[Sequence[torch.Tensor]], place: int, world: int, where: str
) -> None:
    size = len(chunks)
    try:
        expect_reduced(
            got, op, [each[place] for each in chunks], own=place, world=world, where=where
        )
    except CheckFailed as failure:
        if isinstance(got, torch.Tensor) and got.numel() and bool((got == filler(got)).all()):
            failure.cause = "nothing was written into `output`"
            raise
        for other in set(range(size)) - {place}:
            try:
                expect_reduced(
                    got, op, [each[other] for each in chunks], own=place, world=world, where=""
                )
            except CheckFailed:
                continue
            if got.numel():
                failure.cause = (
                    f"this is chunk {other}, finished on the wrong rank: group rank {place} must "
                    f"end with chunk {place}, so the first chunk it sends is another one"
                )
        raise


def all_gather_case(
    rng: torch.Generator, world: int, ranks: Sequence[int] | None, spec: Spec
) -> Case:
    """Everyone's `tensor` on every rank, in group order. spec: of `tensor`."""
    members = list(range(world) if ranks is None else ranks)
    size = len(members)
    inputs = {rank: random_tensor(rng, spec) for rank in members}
    whole = random_tensor(rng, spec, (size * spec[1][0], *spec[1][1:]))
    room = filler(whole)
    arguments = [
        {"output": twin(room), "tensor": inputs[rank]} if rank in inputs else {}
        for rank in range(world)
    ]
    expected = torch.cat([inputs[rank] for rank in members])
    parts = [inputs[rank] for rank in members]

    def judge(answers: list[Any]) -> None:
        if _refused_by_all([answers[rank] for rank in members], members, spec[2]):
            return
        for place, rank in enumerate(members):
            after, where = answers[rank]["arguments"], f"rank {rank}"
            suspects = [
                (room, "nothing was written into `output`"),
                (torch.cat([inputs[each] for each in sorted(members)]),
                 "the chunks stand in the order of the global ranks, not of the group's"),
                (torch.cat(parts[place:] + parts[:place]),
                 "every rank begins with its own chunk: place i belongs to group rank i"),
                (torch.cat([room.tensor_split(size)[i] if i == place else part
                            for i, part in enumerate(parts)]),
                 "a rank's own chunk is missing from its `output`"),
            ]  # fmt: skip
            expect_equal(after["output"], expected, where, suspects)
            expect_unchanged(
                after["tensor"], inputs[rank], "tensor", where, "a chunk was received into `tensor`"
            )

    label = label_of(spec, world, ranks, "tensor")
    traits = traits_of(spec, size, ranks)
    needs = everyone_needs(members, parts[0].numel())
    return Case(label, arguments, judge, ranks=ranks, traits=traits, refused=spec[2], needs=needs)


def deal(make: Any, pairs: Sequence[tuple[Spec, str]], worlds: Sequence[int]) -> list[Case]:
    """`make(world, ranks, spec, op)` for all pairs, dealt out to the worlds and to sub-groups."""
    size = len(worlds)
    cases = [
        make(world, None, spec, op)
        for number, (spec, op) in enumerate(pairs)
        for world in sorted({worlds[number % size], 3})
    ]
    cases += [make(1, None, *pairs[number]) for number in (0, 2, 7)]
    for number, ranks in enumerate(GROUPS):
        cases += [make(5, ranks, *pairs[place]) for place in (1, number + 2)]
    return cases


def lengths(make: Any, worlds: Sequence[int]) -> list[Case]:
    """SUM of float32 at lengths around multiples of the number of ranks; once by default."""
    cases = [
        make(world, None, (FLOAT, (length,), False), "SUM")
        for world in worlds
        for length in sorted({1, world - 1, world + 1, 4 * world - 1})
    ]
    cases[-1].op, cases[-1].label = None, f"{cases[-1].label}, no op given"
    return cases


def op_refusals(
    rng: torch.Generator, world: int, each: Sequence[dict[str, Any]] | None = None
) -> list[Case]:
    """What every task with an `op` refuses: AVG of integers, an operation it does not know.

    each: by rank, further arguments; with them `tensor` has 2 elements for each rank.
    """
    more = [{} for _ in range(world)] if each is None else each
    integers = [{**more[rank], "tensor": torch.arange(2 * world) + rank} for rank in range(world)]
    again = [{**more[rank], "tensor": torch.arange(2 * world) + rank} for rank in range(world)]
    return [
        refusal("AVG of int64", integers, ["op|AVG", "int64"], op="AVG"),
        refusal("op BAND", again, ["op", "BAND"], op="BAND"),
    ]


def all_reduce_refusals(world: int, each: Sequence[dict[str, Any]] | None = None) -> list[Case]:
    """What an all-reduce refuses beside: a tensor of many elements in one cell of memory."""
    more = [{} for _ in range(world)] if each is None else each
    cells = [torch.full((1,), rank + 1.0).expand(2 * world) for rank in range(world)]
    arguments = [{**more[rank], "tensor": cells[rank]} for rank in range(world)]
    names = ["tensor", "expand|stride|share|overlap"]
    return [refusal(f"a tensor expanded from (1,) to ({2 * world},)", arguments, names, op="SUM")]
