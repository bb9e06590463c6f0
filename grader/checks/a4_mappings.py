"""The conjugate mappings of assignments 4 and 5: cases, results, gradients, bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from grader.checks import a4_volume as volume
from grader.checks.a4_cases import share
from grader.checks.a4_judges import expect, judge_refusal
from grader.checks.compare import assert_close
from grader.checks.framework import CheckFailed
from grader.checks.world import Outcome, SimulatedCluster

OPERATIONS = 64


@dataclass(frozen=True)
class Mapping:
    """What a mapping does, and in which dimension it cuts.

    forward, backward: "same", "sum", "slice", "join" or "sum-slice".
    """

    task: str
    forward: str
    backward: str
    dim: int = -1


MAPPINGS = {
    each.task: each
    for each in (
        Mapping("a4.copy_to_tensor_parallel", "same", "sum"),
        Mapping("a4.reduce_from_tensor_parallel", "sum", "same"),
        Mapping("a4.scatter_to_tensor_parallel", "slice", "join"),
        Mapping("a4.gather_from_tensor_parallel", "join", "slice"),
        Mapping("a5.gather_from_sequence_parallel", "join", "sum-slice", 0),
        Mapping("a5.reduce_scatter_to_sequence_parallel", "sum-slice", "join", 0),
        Mapping("a5.scatter_to_sequence_parallel", "slice", "join", 0),
    )
}

#: The collective behind each, and how many times (n − 1) / n of the whole tensor it sends.
CALLS = {"sum": "all_reduce", "join": "all_gather", "sum-slice": "reduce_scatter"}


@dataclass
class MappingCase:
    """A call on `world` ranks: tensors and gradients by group rank."""

    label: str
    world: int
    ranks: tuple[int, ...] | None
    tensors: list[torch.Tensor]
    gradients: list[torch.Tensor]
    beside: bool = False
    refused: bool = False

    @property
    def members(self) -> list[int]:
        """Global ranks, in group order."""
        return list(range(self.world) if self.ranks is None else self.ranks)

    def of_rank(self, rank: int) -> dict[str, Any]:
        """The case that the driver of a global rank gets."""
        place = self.members.index(rank) if rank in self.members else 0
        return {
            "tensor": self.tensors[place].clone(),
            "gradient": self.gradients[place].clone(),
            "beside": self.beside,
            "ranks": None if self.ranks is None else list(self.ranks),
            "refused": self.refused,
        }


def make(
    mapping: Mapping,
    rng: torch.Generator,
    world: int,
    ranks: tuple[int, ...] | None = None,
    *,
    shape: tuple[int, ...] = (3, 2),
    dtype: torch.dtype = torch.float64,
    scalar_gradient: bool = False,
    beside: bool = False,
    strided: bool = False,
    label: str = "",
) -> MappingCase:
    """A random case. shape: of one share; where it is whole, the cut dimension is n times that."""
    size = world if ranks is None else len(ranks)
    whole = list(shape)
    whole[mapping.dim] *= size
    enters = shape if mapping.forward == "join" else tuple(whole)
    leaves = shape if mapping.forward in ("slice", "sum-slice") else tuple(whole)

    def random(of: Sequence[int], replicated: bool) -> list[torch.Tensor]:
        count = 1 if replicated else size
        wide = [torch.randn(tuple(of), generator=rng, dtype=torch.float64) for _ in range(count)]
        made = [each.to(dtype) for each in wide]
        if strided:
            made = [torch.stack([each, each], -1)[..., 0] for each in made]
        return made * (size // count)

    tensors = random(enters, mapping.forward in ("same", "slice"))
    if scalar_gradient:
        gradients = random((), mapping.backward in ("same", "slice"))
    else:
        gradients = random(leaves, mapping.backward in ("same", "slice"))
    where = f"{world} rank{'s' * (world > 1)}" if ranks is None else f"group {list(ranks)}"
    return MappingCase(
        ", ".join(filter(None, [where, label])), world, ranks, tensors, gradients, beside
    )


def run(
    cluster: SimulatedCluster, mapping: Mapping, cases: Sequence[MappingCase], judged: bool = True
) -> Outcome:
    """Run cases of one world in one world; judge values, gradients and what must not change."""
    inputs = [
        {"task": mapping.task, "cases": [case.of_rank(rank) for case in cases]}
        for rank in range(cases[0].world)
    ]
    outcome = cluster.run("a4:mappings", inputs, task=mapping.task, allow=None)
    for number, case in enumerate(cases if judged else ()):
        judge(mapping, case, [answers[number] for answers in outcome.outputs])
    return outcome


def applied(what: str, tensors: Sequence[torch.Tensor], place: int, dim: int) -> torch.Tensor:
    """The result of one direction on a group rank; tensors by group rank, float64."""
    total = torch.stack(list(tensors)).sum(0)
    if what == "same":
        return tensors[place]
    if what == "sum":
        return total
    if what == "join":
        return torch.cat(list(tensors), dim)
    return share(tensors[place] if what == "slice" else total, dim, place, len(tensors))


def suspects_of(
    what: str, tensors: Sequence[torch.Tensor], place: int, dim: int
) -> list[tuple[torch.Tensor, str]]:
    """Wrong results of one direction, each with its cause."""
    size = len(tensors)
    if size == 1:
        return []
    right, own = applied(what, tensors, place, dim), tensors[place]
    zeros = torch.zeros_like(right)
    total = torch.stack(list(tensors)).sum(0)
    summed = share(total, dim, place, size) if "slice" in what else total
    suspects: list[tuple[torch.Tensor, str]] = []
    if what in ("sum", "sum-slice"):
        suspects += [
            (right / size, "averaged over the ranks, where a sum is meant"),
            (own, "the rank's own tensor came through: nothing was summed"),
            (total, "the whole sum came back, not this rank's share"),
            (right * size, "summed twice: what is equal on all ranks was added up again"),
        ]
    if what == "sum-slice":
        mine = share(own, dim, place, size)
        suspects.append((mine, "a slice of the rank's own tensor: nothing was summed"))
    if what == "same":
        suspects += [
            (total, "summed over the ranks, where each has the whole already"),
            (right / size, "divided by the number of ranks, where each has the whole already"),
        ]
    if what == "slice":
        suspects += [
            (summed, "summed over the ranks, where each has the whole already: n times too large"),
            (summed / size, "summed and averaged: right in value, but it was communicated for"),
            (own, "the whole came back, not this rank's share"),
        ]
    if what == "join":
        padded = zeros.clone()
        width = own.shape[dim]
        padded.narrow(dim, place * width, width).copy_(own)
        other = 0 if dim != 0 else -1
        suspects += [
            (padded, "only the rank's own share is there, the others' are zeros"),
            (own, "the rank's own share came back: nothing was gathered"),
            (torch.cat(list(tensors), other), f"joined along dimension {other}, not {dim}"),
            (
                torch.cat(list(tensors[::-1]), dim),
                "the parts are joined from the last rank to the first",
            ),
        ]
    if what == "slice":
        turns = torch.arange(place, own.shape[dim], size)
        why = "every n-th element is taken; a rank's share is contiguous"
        suspects.append((own.index_select(dim, turns), why))
    for other in range(size) if what in ("slice", "sum-slice") else ():
        taken = share(own if what == "slice" else total, dim, other, size)
        suspects.append((taken, f"the share of group rank {other}, not of group rank {place}"))
    return suspects


def judge(mapping: Mapping, case: MappingCase, answers: Sequence[Any]) -> None:
    """Result, gradient, and that argument and upstream gradient are what they were."""
    wide = [tensor.double() for tensor in case.tensors]
    dtype = case.tensors[0].dtype
    for place, rank in enumerate(case.members):
        answer, where = answers[rank], f"{case.label}: rank {rank}"
        wanted = applied(mapping.forward, wide, place, mapping.dim)
        _expect(
            answer["output"], wanted, dtype, f"{where}, result",
            suspects_of(mapping.forward, wide, place, mapping.dim),
        )  # fmt: skip
        if not torch.equal(answer["argument"], case.tensors[place]):
            raise CheckFailed(
                f"{where}: the argument was changed: it began with "
                f"{case.tensors[place].flatten()[:3].tolist()} and is now "
                f"{answer['argument'].flatten()[:3].tolist()}",
                cause="a collective works in place on the caller's tensor: give it a copy",
            )
        gradients = [g.double().expand_as(applied(mapping.forward, wide, p, mapping.dim))
                     for p, g in enumerate(case.gradients)]  # fmt: skip
        wanted = applied(mapping.backward, gradients, place, mapping.dim)
        suspects = suspects_of(mapping.backward, gradients, place, mapping.dim)
        if case.beside:
            added = gradients[place]
            suspects = [(bad + added, why) for bad, why in suspects if bad.shape == added.shape]
            suspects.insert(0, (2 * wanted, IN_PLACE))
            wanted = wanted + added
        if answer["input_gradient"] is None:
            raise CheckFailed(
                f"{where}: no gradient came back", cause="the result is cut off from the graph"
            )
        if not answer["gradient_kept"]:
            raise CheckFailed(
                f"{where}: the gradient that backward was given has been changed", cause=IN_PLACE
            )
        _expect(answer["input_gradient"], wanted, dtype, f"{where}, gradient", suspects)


IN_PLACE = "backward works in place on the gradient it is given, which autograd uses elsewhere too"


def _expect(got: Any, wanted: torch.Tensor, dtype: torch.dtype, where: str, suspects: Any) -> None:
    if dtype == torch.float64:
        expect(got, wanted, where, partial(list, suspects), operations=OPERATIONS)
        return
    scale = wanted.abs().max().clamp(min=1) * 4
    assert_close(
        got, wanted, dtype=dtype, operations=8, scale=scale.expand(wanted.shape), where=where,
        suspects=suspects,
    )  # fmt: skip


def judge_bytes(
    cluster: SimulatedCluster, mapping: Mapping, rng: torch.Generator, metrics: dict[str, Any]
) -> None:
    """One collective in the direction that has one, nothing in the other."""
    world = 4
    case = make(mapping, rng, world, shape=(4, 4))
    outcome = run(cluster, mapping, [case], judged=False)
    whole = 4 * 4 * world * 8
    for rank, (answer,) in enumerate(outcome.outputs):
        for direction, what, operations in zip(
            ("forward", "backward"),
            (mapping.forward, mapping.backward),
            volume.phases(outcome.trace, rank, answer["marks"]),
            strict=True,
        ):
            where = f"{case.label}: rank {rank}, {direction}"
            kind = CALLS.get(what)
            allowed = volume.moved(kind, whole, world) if kind else 0
            expected = f"what one {kind} sends" if kind else "nothing"
            nbytes = volume.expect_phase(
                operations, world, allowed, where, expected, cause=_wasteful(what, operations)
            )
            metrics[f"{direction}_bytes"] = nbytes
    judge(mapping, case, [answers[0] for answers in outcome.outputs])


def _wasteful(what: str, operations: Sequence[Any]) -> str:
    kinds = {operation.kind for operation in operations}
    if what in ("same", "slice"):
        return "it communicates for what every rank has already"
    if what == "sum" and "all_gather" in kinds:
        return "everything is gathered and summed on every rank"
    if what == "sum-slice" and "all_reduce" in kinds:
        return "an all-reduce moves twice what a reduce-scatter does"
    return "more is sent than one collective needs"


def judge_refusals(cluster: SimulatedCluster, mapping: Mapping) -> None:
    """Sizes that the ranks do not divide raise ValueError on all of them, naming both numbers."""
    cases = []
    for world, length in ((3, 7), (3, 2)):
        shape = [3, 3]
        shape[mapping.dim] = length
        tensor = torch.ones(shape, dtype=torch.float64)
        label = f"{world} ranks, shape {tuple(shape)}"
        cases.append(
            MappingCase(label, world, None, [tensor] * world, [tensor] * world, refused=True)
        )
    outcome = run(cluster, mapping, cases, judged=False)
    for number, case in enumerate(cases):
        for rank in range(case.world):
            error = outcome.outputs[rank][number].get("error")
            length = case.tensors[0].shape[mapping.dim]
            judge_refusal(error, [length, case.world], f"{case.label}: rank {rank}")
