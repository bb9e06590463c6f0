"""The cases of assignment 1, one maker per task: what goes in and how to judge what comes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from grader.checks.a1_cases import (
    NUMBERS,
    Make,
    Spec,
    expect_equal,
    expect_reduced,
    expect_unchanged,
    filler,
    label_of,
    lists_untouched,
    op_traits,
    operations_for,
    random_tensor,
    traits_of,
)
from grader.checks.causes import Case
from grader.checks.framework import CheckFailed

Ranks = Sequence[int] | None
METHODS = {
    "all_reduce_pairwise": "all_reduce",
    "all_reduce_parameter_server": "parameter_server",
}


class Maker:
    """Makes cases with random tensors from one generator.

    Each method takes (world, ranks, spec, root, number): world size, global ranks of the group or
    None, what tensors to use, a root (global rank), and a number by which sizes and operations
    change from case to case.
    """

    def __init__(self, rng: torch.Generator, op: str | None = None) -> None:
        self._rng = rng
        self._op = op

    def of(self, name: str) -> Make:
        """The method that makes cases of task a1.`name`."""
        method: Make = getattr(self, METHODS.get(name, name))
        return method

    def _random(self, spec: Spec, shape: Sequence[int] | None = None) -> torch.Tensor:
        tensor: torch.Tensor = random_tensor(self._rng, spec, shape)
        return tensor

    def _choose_op(self, spec: Spec, number: int) -> str:
        choice = operations_for(spec)
        return self._op or choice[number % len(choice)]

    def neighbour_exchange(
        self, world: int, ranks: Ranks, spec: Spec, root: int, number: int
    ) -> Case:
        """Both neighbours' tensors come back."""
        members = list(range(world) if ranks is None else ranks)
        tensors = [self._random(spec) for _ in range(world)]

        def judge(answers: list[Any]) -> None:
            for place, rank in enumerate(members):
                result = answers[rank]["returned"]
                if not isinstance(result, (tuple, list)) or len(result) != 2:
                    kind = type(result).__name__
                    raise CheckFailed(
                        f"rank {rank}: expected (from previous, from next), got {kind}",
                        cause="the function returns nothing, or not a pair",
                    )
                previous = tensors[members[place - 1]]
                following = tensors[members[(place + 1) % len(members)]]
                swapped = "the two are swapped: this is the other neighbour's tensor"
                own = (tensors[rank], "a rank got its own tensor back")
                for name, got, want, other in (
                    ("from previous", result[0], previous, following),
                    ("from next", result[1], following, previous),
                ):
                    suspects = [own, (other, swapped)] if len(members) > 1 else []
                    expect_equal(got, want, f"rank {rank}, tensor {name}", suspects)

        return Case(
            label_of(spec, world, ranks), [{"tensor": tensor} for tensor in tensors], judge,
            ranks=ranks, traits=traits_of(spec, len(members), ranks),
        )  # fmt: skip

    def broadcast(self, world: int, ranks: Ranks, spec: Spec, root: int, number: int) -> Case:
        """Everyone has the root's tensor."""
        members = list(range(world) if ranks is None else ranks)
        tensors = [self._random(spec) for _ in range(world)]

        def judge(answers: list[Any]) -> None:
            for rank in members:
                suspects = [(tensors[rank], "nothing was received, or not into the tensor")]
                suspects += [
                    (tensors[other], f"this is the tensor of rank {other}, not of src={root}")
                    for other in members
                    if other != root
                ]
                got = answers[rank]["arguments"]["tensor"]
                expect_equal(got, tensors[root], f"rank {rank}", suspects if rank != root else ())

        return Case(
            label_of(spec, world, ranks, f"root {root}"),
            [{"tensor": tensor, "src": root} for tensor in tensors], judge, ranks=ranks,
            traits=traits_of(spec, len(members), ranks, *_root_trait(members, root)),
        )  # fmt: skip

    def scatter(self, world: int, ranks: Ranks, spec: Spec, root: int, number: int) -> Case:
        """Each rank has its entry of the root's list, which is unchanged."""
        members = list(range(world) if ranks is None else ranks)
        shapes = _shapes(spec, len(members), number)
        inputs = [self._random(spec, shape) for shape in shapes]
        outputs = {rank: filler(tensor) for rank, tensor in zip(members, inputs, strict=True)}

        def judge(answers: list[Any]) -> None:
            lists_untouched(answers[root], "inputs", inputs, f"rank {root}")
            for rank, expected in zip(members, inputs, strict=True):
                got = answers[rank]["arguments"]["output"]
                missing = "nothing was written into `output`"
                if rank == root:
                    missing = "the root's own output was not written: it gets its entry, too"
                expect_equal(got, expected, f"rank {rank}", [(outputs[rank], missing)])
            for place, before in enumerate(inputs):
                after = answers[root]["arguments"]["inputs"][place]
                cause = "the root's list is an input: it must not be written to"
                expect_unchanged(after, before, f"inputs[{place}]", f"rank {root}", cause)

        arguments = [
            {
                "output": outputs.get(rank, inputs[0]),
                "inputs": list(inputs) if rank == root else None,
                "src": root,
            }
            for rank in range(world)
        ]
        more = _root_trait(members, root) + _uneven_trait(shapes)
        return Case(
            label_of(spec, world, ranks, f"root {root}"), arguments, judge, ranks=ranks,
            traits=traits_of(spec, len(members), ranks, *more),
        )  # fmt: skip

    def gather(self, world: int, ranks: Ranks, spec: Spec, root: int, number: int) -> Case:
        """The root's list holds each rank's tensor, in order of group rank."""
        members = list(range(world) if ranks is None else ranks)
        shapes = _shapes(spec, len(members), number)
        tensors = [self._random(spec, shape) for shape in shapes]
        by_rank = dict(zip(members, tensors, strict=True))
        outputs = [filler(tensor) for tensor in tensors]

        def judge(answers: list[Any]) -> None:
            lists_untouched(answers[root], "outputs", outputs, f"rank {root}")
            _judge_list(answers[root]["given"]["outputs"], tensors, outputs, root, members)
            for rank, before in by_rank.items():
                after = answers[rank]["arguments"]["tensor"]
                cause = "`tensor` is an input: it must not be written to"
                expect_unchanged(after, before, "tensor", f"rank {rank}", cause)

        arguments = [
            {
                "tensor": by_rank.get(rank, tensors[0]),
                "outputs": outputs if rank == root else None,
                "dst": root,
            }
            for rank in range(world)
        ]
        more = _root_trait(members, root) + _uneven_trait(shapes)
        return Case(
            label_of(spec, world, ranks, f"root {root}"), arguments, judge, ranks=ranks,
            traits=traits_of(spec, len(members), ranks, *more),
        )  # fmt: skip

    def reduce(
        self,
        world: int,
        ranks: Ranks,
        spec: Spec,
        root: int,
        number: int,
        only_root: bool = True,
    ) -> Case:
        """The root has the reduction; with `only_root` false the others' tensors count, too."""
        members = list(range(world) if ranks is None else ranks)
        op = self._choose_op(spec, number)
        tensors = [self._random(spec) for _ in range(world)]

        def judge(answers: list[Any]) -> None:
            inputs = [tensors[rank] for rank in members]
            expect_reduced(
                answers[root]["arguments"]["tensor"], op, inputs, own=members.index(root),
                world=world, where=f"rank {root}", before=tensors[root],
            )  # fmt: skip
            for rank in members:
                if rank != root and not only_root:
                    after = answers[rank]["arguments"]["tensor"]
                    cause = "partial sums were written into the argument: use a tensor of your own"
                    expect_unchanged(after, tensors[rank], "tensor", f"rank {rank}", cause)

        return Case(
            label_of(spec, world, ranks, f"root {root}", op),
            [{"tensor": tensor, "dst": root} for tensor in tensors], judge, op=op, ranks=ranks,
            traits=traits_of(
                spec, len(members), ranks, *_root_trait(members, root), *op_traits(op)
            ),
        )  # fmt: skip

    def all_gather(self, world: int, ranks: Ranks, spec: Spec, root: int, number: int) -> Case:
        """Everyone's list holds each rank's tensor, in order of group rank."""
        members = list(range(world) if ranks is None else ranks)
        shapes = _shapes(spec, len(members), number)
        tensors = [self._random(spec, shape) for shape in shapes]
        by_rank = dict(zip(members, tensors, strict=True))
        outputs = [filler(tensor) for tensor in tensors]

        def judge(answers: list[Any]) -> None:
            for rank in members:
                lists_untouched(answers[rank], "outputs", outputs, f"rank {rank}")
                _judge_list(answers[rank]["given"]["outputs"], tensors, outputs, rank, members)
                after = answers[rank]["arguments"]["tensor"]
                cause = "`tensor` is an input: it must not be written to"
                expect_unchanged(after, by_rank[rank], "tensor", f"rank {rank}", cause)

        arguments = [
            {"outputs": outputs, "tensor": by_rank.get(rank, tensors[0])} for rank in range(world)
        ]
        return Case(
            label_of(spec, world, ranks), arguments, judge, ranks=ranks,
            traits=traits_of(spec, len(members), ranks, *_uneven_trait(shapes)),
        )  # fmt: skip

    def reduce_scatter(
        self,
        world: int,
        ranks: Ranks,
        spec: Spec,
        root: int,
        number: int,
        inputs_too: bool = False,
    ) -> Case:
        """Group rank i has the reduction of all inputs[i]."""
        members = list(range(world) if ranks is None else ranks)
        op = self._choose_op(spec, number)
        shapes = _shapes(spec, len(members), number)
        inputs = {rank: [self._random(spec, shape) for shape in shapes] for rank in members}
        outputs = {rank: filler(inputs[rank][place]) for place, rank in enumerate(members)}

        def judge(answers: list[Any]) -> None:
            for place, rank in enumerate(members):
                entries = [inputs[peer][place] for peer in members]
                expect_reduced(
                    answers[rank]["arguments"]["output"], op, entries, own=place, world=world,
                    where=f"rank {rank}", before=outputs[rank],
                )  # fmt: skip
            for rank in members if inputs_too else ():
                lists_untouched(answers[rank], "inputs", inputs[rank], f"rank {rank}")
                for place, before in enumerate(inputs[rank]):
                    after = answers[rank]["arguments"]["inputs"][place]
                    cause = f"the result was written into inputs[{place}]: use a tensor of your own"
                    expect_unchanged(after, before, f"inputs[{place}]", f"rank {rank}", cause)

        first = members[0]
        arguments = [
            {
                "output": outputs.get(rank, outputs[first]),
                "inputs": inputs.get(rank, inputs[first]),
            }
            for rank in range(world)
        ]
        more = _uneven_trait(shapes) + op_traits(op)
        return Case(
            label_of(spec, world, ranks, op), arguments, judge, op=op, ranks=ranks,
            traits=traits_of(spec, len(members), ranks, *more),
        )  # fmt: skip

    def all_reduce(
        self, world: int, ranks: Ranks, spec: Spec, root: int, number: int, server: bool = False
    ) -> Case:
        """Everyone has the reduction. server: pass the root's group rank as `server`."""
        members = list(range(world) if ranks is None else ranks)
        op = self._choose_op(spec, number)
        tensors = [self._random(spec) for _ in range(world)]
        place_of_server = members.index(root)
        left_out = place_of_server if server else None

        def judge(answers: list[Any]) -> None:
            inputs = [tensors[rank] for rank in members]
            for place, rank in enumerate(members):
                expect_reduced(
                    answers[rank]["arguments"]["tensor"], op, inputs, own=place, world=world,
                    where=f"rank {rank}", before=tensors[rank], server=left_out,
                )  # fmt: skip

        arguments: list[dict[str, Any]] = [{"tensor": tensor} for tensor in tensors]
        words = [op]
        if server:
            arguments = [each | {"server": place_of_server} for each in arguments]
            words.append(f"server {place_of_server}")
        more = op_traits(op) + (_root_trait(members, root) if server else [])
        return Case(
            label_of(spec, world, ranks, *words), arguments, judge, op=op, ranks=ranks,
            traits=traits_of(spec, len(members), ranks, *more),
        )  # fmt: skip

    def parameter_server(
        self, world: int, ranks: Ranks, spec: Spec, root: int, number: int
    ) -> Case:
        """`all_reduce` with the root as the server."""
        return self.all_reduce(world, ranks, spec, root, number, server=True)


def _judge_list(
    got: Sequence[object],
    expected: Sequence[torch.Tensor],
    before: Sequence[torch.Tensor],
    rank: int,
    members: Sequence[int],
) -> None:
    """A list of gathered tensors on one rank."""
    for place, want in enumerate(expected):
        missing = "nothing was written into this entry of the list"
        if members[place] == rank:
            missing = "a rank's own tensor was not written into its own list"
        suspects = [(before[place], missing)]
        suspects += [
            (
                other,
                f"this is the tensor of group rank {index}: the list is filled in another order",
            )
            for index, other in enumerate(expected)
            if index != place
        ]
        expect_equal(got[place], want, f"rank {rank}, entry {place} of the list", suspects)


def _root_trait(members: Sequence[int], root: int) -> list[str]:
    return ["root is not rank 0"] if root != members[0] else []


def _uneven_trait(shapes: Sequence[tuple[int, ...]]) -> list[str]:
    return ["uneven"] if len(set(shapes)) > 1 else []


def _shapes(spec: Spec, size: int, number: int) -> list[tuple[int, ...]]:
    """One shape per rank: alike, or (one-dimensional, every second case) of different lengths."""
    shape = spec[1]
    if len(shape) == 1 and shape[0] > 0 and number % 2 and spec in NUMBERS:
        return [((shape[0] + 3 * place) % 11,) for place in range(size)]
    return [shape] * size
