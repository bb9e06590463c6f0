"""The checks of assignment 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from grader.checks import a1_volume as volume
from grader.checks.a1_cases import (
    NUMBERS,
    SPECS,
    Spec,
    expect_new_memory,
    expect_unchanged,
    over_groups,
    over_worlds,
    refusal,
)
from grader.checks.a1_makers import Maker
from grader.checks.causes import Bench, Case, heard_of
from grader.checks.compare import assert_same_bits
from grader.checks.framework import CheckFailed, check
from grader.checks.world import SimulatedCluster
from grader.fabric.trace import Trace

Metrics = dict[str, Any]
Make = Callable[..., Case]

NARROW: Spec = (torch.bfloat16, (48,), False)
NARROW_BYTES = 96
MEASURED = (2, 5, 8)  # ranks of the worlds in which volume is measured
REORDER: Spec = (torch.float32, (257,), False)  # long enough that another order shows


@pytest.fixture
def make(rng: torch.Generator) -> Maker:
    """Makes cases with random inputs."""
    return Maker(rng)


def bench(cluster: SimulatedCluster, name: str) -> Bench:
    """Runs cases of task a1.`name`."""
    return Bench(cluster, f"a1.{name}", "a1:collective")


def measure(
    cluster: SimulatedCluster, name: str, maker: Make, judge: Callable[[Trace, int], None]
) -> Trace:
    """Run one case in each measured world and judge its trace; the last trace is returned.

    judge(trace, root). The call must also be right; NCCL's order of messages is tried as well.
    """
    for world in MEASURED:
        root = world // 2
        case = maker(world, None, NARROW, root, 0)
        outcome = bench(cluster, name).run([case], nccl_hint=world == MEASURED[1])
        judge(outcome.trace, root)
    return outcome.trace


def refuses(cluster: SimulatedCluster, name: str, cases: list[Case]) -> None:
    """All cases raise what they must, and nothing is sent."""
    outcome = bench(cluster, name).run(cases)
    sent = sum(outcome.trace.messages_sent)
    if sent:
        raise CheckFailed(
            f"{sent} messages were sent by calls that must be refused, expected none",
            cause="the error was found only after messages had been sent",
        )


def vectors(world: int = 3, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """One small tensor per rank."""
    return [torch.full((4,), rank + 1, dtype=dtype) for rank in range(world)]


# neighbour_exchange -----------------------------------------------------------------------------


@check("a1.neighbour_exchange", points=4, name="returns both neighbours' tensors")
def test_neighbour_exchange_values(cluster: SimulatedCluster, make: Maker) -> None:
    bench(cluster, "neighbour_exchange").run_all(over_worlds(make.neighbour_exchange), schedules=2)


@check("a1.neighbour_exchange", points=1.5, name="works in sub-groups and alone")
def test_neighbour_exchange_groups(cluster: SimulatedCluster, make: Maker) -> None:
    cases = over_groups(make.neighbour_exchange)
    usual = [make.neighbour_exchange(world, None, SPECS[0], 0, 0) for world in (2, 3)]
    bench(cluster, "neighbour_exchange").run_all(cases, usual)


@check("a1.neighbour_exchange", points=1.5, name="returns new tensors and keeps its argument")
def test_neighbour_exchange_new_tensors(cluster: SimulatedCluster, make: Maker) -> None:
    for world in (1, 2, 3):
        case = make.neighbour_exchange(world, None, SPECS[0], 0, 0)
        outcome = bench(cluster, "neighbour_exchange").run([case])
        for rank, (answer,) in enumerate(outcome.outputs):
            where = f"{world} ranks, rank {rank}"
            expect_new_memory(answer, list(answer["returned"]), where)
            before = case.arguments[rank]["tensor"]
            after = answer["arguments"]["tensor"]
            expect_unchanged(after, before, "tensor", where, "`tensor` must not be written to")


@check("a1.neighbour_exchange", points=1, name="talks to its two neighbours only")
def test_neighbour_exchange_volume(cluster: SimulatedCluster, make: Maker) -> None:
    measure(
        cluster, "neighbour_exchange", make.neighbour_exchange,
        lambda trace, _: volume.neighbours(trace, NARROW_BYTES),
    )  # fmt: skip


# broadcast --------------------------------------------------------------------------------------


@check("a1.broadcast", points=3, name="copies the root's tensor to every rank")
def test_broadcast_values(cluster: SimulatedCluster, make: Maker) -> None:
    bench(cluster, "broadcast").run_all(over_worlds(make.broadcast), schedules=2)


@check("a1.broadcast", points=2, name="works in sub-groups and alone")
def test_broadcast_groups(cluster: SimulatedCluster, make: Maker) -> None:
    usual = [make.broadcast(world, None, SPECS[0], 1, 0) for world in (2, 3)]
    bench(cluster, "broadcast").run_all(over_groups(make.broadcast), usual)


@check("a1.broadcast", points=2, name="sends no more than a binomial tree")
def test_broadcast_volume(cluster: SimulatedCluster, make: Maker, metrics: Metrics) -> None:
    trace = measure(
        cluster, "broadcast", make.broadcast,
        lambda trace, root: volume.broadcast_tree(trace, NARROW_BYTES, root),
    )  # fmt: skip
    metrics["messages_of_the_root"] = max(trace.messages_sent)


@check("a1.broadcast", points=2, name="needs no more rounds than a binomial tree")
def test_broadcast_rounds(cluster: SimulatedCluster, make: Maker, metrics: Metrics) -> None:
    trace = measure(cluster, "broadcast", make.broadcast, logarithmic)
    metrics["rounds"] = trace.rounds


def logarithmic(trace: Trace, _: int) -> None:
    """At most ⌈log₂ p⌉ rounds."""
    volume.rounds(trace, volume.log2_ceiling(len(trace.bytes_sent)))


@check("a1.broadcast", points=1, name="refuses a root outside the group")
def test_broadcast_refusals(cluster: SimulatedCluster) -> None:
    refuses(cluster, "broadcast", outside_the_group("src", "tensor"))


def outside_the_group(root: str, *names: str, op: str | None = None) -> list[Case]:
    """Calls with a root that no rank of the group is: beyond the world, and beside the group."""
    cases = []
    for ranks, wrong in ((None, 7), ((2, 0), 1)):
        arguments = [{name: tensor for name in names} | {root: wrong} for tensor in vectors()]
        cases.append(refusal(f"{root}={wrong}", arguments, [root, str(wrong)], ranks=ranks, op=op))
    return cases


# scatter and gather -----------------------------------------------------------------------------


@check("a1.scatter", points=2, name="gives each rank its tensor and keeps the root's list")
def test_scatter_values(cluster: SimulatedCluster, make: Maker) -> None:
    bench(cluster, "scatter").run_all(over_worlds(make.scatter), schedules=2)


@check("a1.scatter", points=1, name="works in sub-groups and alone")
def test_scatter_groups(cluster: SimulatedCluster, make: Maker) -> None:
    usual = [make.scatter(world, None, SPECS[0], 1, 0) for world in (2, 3)]
    bench(cluster, "scatter").run_all(over_groups(make.scatter), usual)


@check("a1.scatter", points=1, name="sends each rank its own tensor and nothing else")
def test_scatter_volume(cluster: SimulatedCluster, make: Maker) -> None:
    measure(
        cluster, "scatter", make.scatter,
        lambda trace, root: volume.scatter_volume(trace, NARROW_BYTES, root),
    )  # fmt: skip


def root_lists(root: str, one: str, many: str) -> list[Case]:
    """Refusals of scatter and gather. Where only the root can see the fault, it is alone."""
    wrong = [{one: tensor, many: None, root: 7} for tensor in vectors()]
    own = vectors(1)[0]
    cases = [refusal(f"{root}=7", wrong, [root, "7"])]
    for label, given, names in (
        ("three tensors for one rank", [own.clone() for _ in range(3)], [many, "3", "1|one"]),
        ("no list on the root", None, [many, "None"]),
        ("another dtype", [own.double()], [many, "float64", "float32"]),
        ("another shape", [torch.zeros(6)], [many, "6", "4"]),
    ):
        cases.append(refusal(label, [{one: own, many: given, root: 0}], names))
    return cases


def refuses_root_lists(cluster: SimulatedCluster, name: str, cases: list[Case]) -> None:
    """Run refusals of different world sizes."""
    for world in sorted({case.world_size for case in cases}):
        refuses(cluster, name, [case for case in cases if case.world_size == world])


@check("a1.scatter", points=1, name="refuses arguments that do not fit")
def test_scatter_refusals(cluster: SimulatedCluster) -> None:
    refuses_root_lists(cluster, "scatter", root_lists("src", "output", "inputs"))


@check("a1.gather", points=2, name="collects every rank's tensor on the root")
def test_gather_values(cluster: SimulatedCluster, make: Maker) -> None:
    bench(cluster, "gather").run_all(over_worlds(make.gather), schedules=3)


@check("a1.gather", points=1, name="works in sub-groups and alone")
def test_gather_groups(cluster: SimulatedCluster, make: Maker) -> None:
    usual = [make.gather(world, None, SPECS[0], 1, 0) for world in (2, 3)]
    bench(cluster, "gather").run_all(over_groups(make.gather), usual)


@check("a1.gather", points=1, name="brings the root each tensor once")
def test_gather_volume(cluster: SimulatedCluster, make: Maker) -> None:
    measure(
        cluster, "gather", make.gather,
        lambda trace, root: volume.gather_volume(trace, NARROW_BYTES, root),
    )  # fmt: skip


@check("a1.gather", points=1, name="refuses arguments that do not fit")
def test_gather_refusals(cluster: SimulatedCluster) -> None:
    refuses_root_lists(cluster, "gather", root_lists("dst", "tensor", "outputs"))


# reduce -----------------------------------------------------------------------------------------


@check("a1.reduce", points=3, name="reduces into the root's tensor")
def test_reduce_values(cluster: SimulatedCluster, make: Maker) -> None:
    bench(cluster, "reduce").run_all(over_worlds(make.reduce, NUMBERS), schedules=2)


@check("a1.reduce", points=1.5, name="works in sub-groups and alone")
def test_reduce_groups(cluster: SimulatedCluster, make: Maker, rng: torch.Generator) -> None:
    cases = over_groups(make.reduce)
    cases += [Maker(rng, "AVG").reduce(5, (4, 1, 2), SPECS[0], 1, 0)]
    usual = [make.reduce(world, None, SPECS[0], 1, 0) for world in (2, 3)]
    usual += [Maker(rng, "AVG").reduce(3, None, SPECS[0], 1, 0)]
    bench(cluster, "reduce").run_all(cases, usual)


@check("a1.reduce", points=1, name="leaves the other ranks' tensors alone")
def test_reduce_keeps_tensors(cluster: SimulatedCluster, make: Maker) -> None:
    for world in (4, 5):
        cases = [make.reduce(world, None, SPECS[n], n % 2, n, only_root=False) for n in range(4)]
        bench(cluster, "reduce").run(cases)


@check("a1.reduce", points=2, name="sends no more than a tree")
def test_reduce_volume(cluster: SimulatedCluster, make: Maker) -> None:
    measure(
        cluster, "reduce", make.reduce,
        lambda trace, root: volume.reduce_tree(trace, NARROW_BYTES, root),
    )  # fmt: skip


@check("a1.reduce", points=1.5, name="needs no more rounds than a tree")
def test_reduce_rounds(cluster: SimulatedCluster, make: Maker, metrics: Metrics) -> None:
    metrics["rounds"] = measure(cluster, "reduce", make.reduce, logarithmic).rounds


@check("a1.reduce", points=1, name="refuses a root outside the group and operations it lacks")
def test_reduce_refusals(cluster: SimulatedCluster) -> None:
    cases = outside_the_group("dst", "tensor", op="SUM")
    cases += wrong_operations(lambda tensor: {"tensor": tensor, "dst": 0})
    refuses(cluster, "reduce", cases)


def wrong_operations(arguments: Callable[[torch.Tensor], dict[str, Any]]) -> list[Case]:
    """An operation that is none of the five, and AVG of integers."""
    floats, integers = vectors(), vectors(dtype=torch.int32)
    return [
        refusal("op BAND", [arguments(each) for each in integers], ["op", "BAND"], op="BAND"),
        refusal("AVG of int32", [arguments(each) for each in integers], ["AVG", "int"], op="AVG"),
        refusal("op BXOR", [arguments(each) for each in floats], ["op", "BXOR"], op="BXOR"),
    ]


# all_gather and reduce_scatter ------------------------------------------------------------------


@check("a1.all_gather", points=4, name="collects every rank's tensor on every rank")
def test_all_gather_values(cluster: SimulatedCluster, make: Maker) -> None:
    bench(cluster, "all_gather").run_all(over_worlds(make.all_gather), schedules=2)


@check("a1.all_gather", points=2, name="works in sub-groups and alone")
def test_all_gather_groups(cluster: SimulatedCluster, make: Maker) -> None:
    usual = [make.all_gather(world, None, SPECS[0], 0, 0) for world in (2, 3)]
    bench(cluster, "all_gather").run_all(over_groups(make.all_gather), usual)


@check("a1.all_gather", points=3, name="receives only what it lacks")
def test_all_gather_volume(cluster: SimulatedCluster, make: Maker, metrics: Metrics) -> None:
    trace = measure(
        cluster, "all_gather", make.all_gather,
        lambda trace, _: volume.all_gather_volume(trace, NARROW_BYTES),
    )  # fmt: skip
    metrics["bytes_received_per_rank"] = max(trace.bytes_received)


@check("a1.all_gather", points=1, name="refuses lists that do not fit")
def test_all_gather_refusals(cluster: SimulatedCluster) -> None:
    refuses(cluster, "all_gather", wrong_lists("outputs", "tensor"))


def wrong_lists(many: str, one: str, op: str | None = None) -> list[Case]:
    """Lists of the wrong length, dtype and shape, on all ranks alike."""
    cases = []
    for label, given, names in (
        ("4 tensors for 3 ranks", vectors(4), [many, "4", "3"]),
        ("another dtype", [each.double() for each in vectors()], [many, "float64", "float32"]),
        ("another shape", [torch.zeros(6) for _ in range(3)], [many, "6", "4"]),
    ):
        arguments = [{one: tensor, many: given} for tensor in vectors()]
        cases.append(refusal(label, arguments, names, op=op))
    return cases


@check("a1.reduce_scatter", points=3.5, name="reduces entry i of all lists onto rank i")
def test_reduce_scatter_values(cluster: SimulatedCluster, make: Maker) -> None:
    bench(cluster, "reduce_scatter").run_all(over_worlds(make.reduce_scatter, NUMBERS), schedules=2)


@check("a1.reduce_scatter", points=2, name="works in sub-groups and alone")
def test_reduce_scatter_groups(
    cluster: SimulatedCluster, make: Maker, rng: torch.Generator
) -> None:
    cases = over_groups(make.reduce_scatter)
    cases += [Maker(rng, "AVG").reduce_scatter(5, (4, 1, 2), SPECS[0], 1, 0)]
    usual = [make.reduce_scatter(world, None, SPECS[0], 0, 0) for world in (2, 3)]
    usual += [Maker(rng, "AVG").reduce_scatter(3, None, SPECS[0], 1, 0)]
    bench(cluster, "reduce_scatter").run_all(cases, usual)


@check("a1.reduce_scatter", points=1, name="leaves its inputs alone")
def test_reduce_scatter_keeps_inputs(cluster: SimulatedCluster, make: Maker) -> None:
    for world in (1, 3, 4):
        cases = [
            make.reduce_scatter(world, None, SPECS[n], 0, n, inputs_too=True) for n in range(4)
        ]
        bench(cluster, "reduce_scatter").run(cases)


@check("a1.reduce_scatter", points=2.5, name="sends each entry only to the rank that reduces it")
def test_reduce_scatter_volume(cluster: SimulatedCluster, make: Maker, metrics: Metrics) -> None:
    trace = measure(
        cluster, "reduce_scatter", make.reduce_scatter,
        lambda trace, _: volume.reduce_scatter_volume(trace, NARROW_BYTES),
    )  # fmt: skip
    metrics["bytes_sent_per_rank"] = max(trace.bytes_sent)


@check("a1.reduce_scatter", points=1, name="refuses lists that do not fit and operations it lacks")
def test_reduce_scatter_refusals(cluster: SimulatedCluster) -> None:
    cases = wrong_lists("inputs", "output", op="SUM")
    cases += wrong_operations(lambda tensor: {"output": tensor, "inputs": [tensor] * 3})
    refuses(cluster, "reduce_scatter", cases)


# all_to_all_single ------------------------------------------------------------------------------

EVEN = [[2, 2, 2], [2, 2, 2], [2, 2, 2]]
UNEVEN = [[1, 2, 3], [4, 2, 1], [2, 5, 3]]
UNEVEN_FOUR = [[1, 2, 3, 4], [4, 3, 2, 1], [2, 2, 1, 5], [1, 1, 6, 2]]
ONE_IDLE = [[0, 0, 0], [2, 0, 3], [1, 0, 2]]  # rank 0 has nothing, rank 1 gets nothing
ALL_TO_ONE = [[0, 0, 5, 0], [0, 0, 3, 0], [0, 0, 4, 0], [0, 0, 0, 0]]
NOTHING = [[0, 0], [0, 0]]


@check("a1.all_to_all_single", points=5, name="sends every slice to its rank")
def test_all_to_all_values(cluster: SimulatedCluster, make: Maker) -> None:
    cases = [
        make.all_to_all(3, None, SPECS[0], EVEN, splits=False),
        make.all_to_all(3, None, SPECS[3], EVEN, (4,), splits=False),
        make.all_to_all(3, None, SPECS[0], UNEVEN),
        make.all_to_all(3, None, SPECS[1], UNEVEN, (3,)),
        make.all_to_all(3, None, SPECS[2], UNEVEN, (5,)),
        make.all_to_all(4, None, SPECS[0], UNEVEN_FOUR),
        make.all_to_all(4, None, SPECS[9], UNEVEN_FOUR, (2, 3)),
        make.all_to_all(4, None, SPECS[4], UNEVEN_FOUR),
        make.all_to_all(2, None, SPECS[7], [[1, 2], [3, 4]]),
        make.all_to_all(8, None, SPECS[0], [[1 + (i * j) % 3 for j in range(8)] for i in range(8)]),
    ]
    bench(cluster, "all_to_all_single").run_all(cases, schedules=2)


@check("a1.all_to_all_single", points=3, name="copes with empty slices and idle ranks")
def test_all_to_all_empty(cluster: SimulatedCluster, make: Maker) -> None:
    cases = [
        make.all_to_all(3, None, SPECS[0], ONE_IDLE),
        make.all_to_all(3, None, SPECS[1], ONE_IDLE, (4,)),
        make.all_to_all(4, None, SPECS[0], ALL_TO_ONE, (2,)),
        make.all_to_all(2, None, SPECS[0], NOTHING),
        make.all_to_all(2, None, SPECS[0], NOTHING, (3,), splits=False),
    ]
    usual = [make.all_to_all(3, None, SPECS[0], UNEVEN)]
    bench(cluster, "all_to_all_single").run_all(cases, usual, schedules=2)


@check("a1.all_to_all_single", points=2, name="works in sub-groups and alone")
def test_all_to_all_groups(cluster: SimulatedCluster, make: Maker) -> None:
    cases = [
        make.all_to_all(1, None, SPECS[0], [[3]]),
        make.all_to_all(1, None, SPECS[2], [[3]], (2,), splits=False),
        make.all_to_all(5, (4, 1, 2), SPECS[0], UNEVEN),
        make.all_to_all(5, (4, 1, 2), SPECS[1], ONE_IDLE, (2,)),
        make.all_to_all(6, (5, 0, 3, 2), SPECS[0], UNEVEN_FOUR),
        make.all_to_all(4, (2,), SPECS[0], [[2]]),
    ]
    usual = [make.all_to_all(3, None, SPECS[0], UNEVEN)]
    bench(cluster, "all_to_all_single").run_all(cases, usual)


@check("a1.all_to_all_single", points=4, name="sends every byte once, straight to its rank")
def test_all_to_all_volume(cluster: SimulatedCluster, make: Maker, metrics: Metrics) -> None:
    for rows in (EVEN, UNEVEN_FOUR, ALL_TO_ONE):
        case = make.all_to_all(len(rows), None, NARROW, rows, (16,))
        outcome = bench(cluster, "all_to_all_single").run([case], nccl_hint=rows is UNEVEN_FOUR)
        volume.all_to_all_volume(outcome.trace, rows, row_bytes=32)
    metrics["total_bytes"] = outcome.trace.total_bytes


@check("a1.all_to_all_single", points=2, name="refuses split sizes that do not fit")
def test_all_to_all_refusals(cluster: SimulatedCluster) -> None:
    rows = torch.arange(12.0).view(6, 2)
    even = [2, 2, 2]

    def wrong(
        label: str, names: list[str], output: torch.Tensor, out: Any, input: Any, into: Any
    ) -> Case:
        arguments = {
            "output": output,
            "input": input,
            "output_split_sizes": out,
            "input_split_sizes": into,
        }
        return refusal(label, [arguments] * 3, names)

    room = torch.zeros(6, 2)
    cases = [
        wrong("input sizes too small", ["input", "3", "6"], room[:3], [1] * 3, rows, [1] * 3),
        wrong("output sizes too small", ["output", "3", "6"], room, [1] * 3, rows[:3], [1] * 3),
        wrong("four sizes", ["input", "4", "3"], room, even, rows, [2, 2, 1, 1]),
        wrong("a negative size", ["output", "-1"], room, [5, 2, -1], rows, even),
        wrong("5 rows for 3 ranks", ["input", "5", "3"], room[:3], None, rows[:5], None),
        wrong("another dtype", ["output", "float64", "float32"], room.double(), even, rows, even),
    ]
    refuses(cluster, "all_to_all_single", cases)


# barrier ----------------------------------------------------------------------------------------


def barrier_case(world: int, ranks: tuple[int, ...] | None = None) -> Case:
    """One call of the barrier; the trace judges it."""
    label = f"{world} ranks" if ranks is None else f"group {list(ranks)}"
    return Case(label, [{} for _ in range(world)], lambda answers: None, ranks=ranks)


def run_barrier(cluster: SimulatedCluster, case: Case) -> Trace:
    """Run a barrier and demand that word of every rank reached every rank."""
    trace = bench(cluster, "barrier").run([case]).trace
    heard = heard_of(trace.record)
    for rank in case.members:
        deaf = [other for other in case.members if other not in heard[rank]]
        if deaf:
            raise CheckFailed(
                f"{case.label}: rank {rank} may leave before rank {deaf[0]} has come",
                cause=f"rank {rank} had not heard of ranks {deaf}, neither directly nor by others",
            )
    return trace


@check("a1.barrier", points=1.5, name="lets nobody leave before all have come")
def test_barrier_holds(cluster: SimulatedCluster) -> None:
    for world in (2, 4, 8, 3, 5):
        try:
            run_barrier(cluster, barrier_case(world))
        except CheckFailed as failure:
            if world in (3, 5) and failure.status == "failed":
                failure.cause = f"right for 2, 4 and 8 ranks: a power of two ({failure.cause})"
            raise


@check("a1.barrier", points=1, name="works in sub-groups and alone")
def test_barrier_groups(cluster: SimulatedCluster) -> None:
    run_barrier(cluster, barrier_case(1))
    run_barrier(cluster, barrier_case(5, (4, 1, 2)))
    run_barrier(cluster, barrier_case(6, (5, 0, 3, 2)))


@check("a1.barrier", points=1.5, name="takes the rounds and messages of a dissemination barrier")
def test_barrier_volume(cluster: SimulatedCluster, metrics: Metrics) -> None:
    for world in (5, 8):
        trace = run_barrier(cluster, barrier_case(world))
        volume.barrier_volume(trace)
    metrics["rounds"] = trace.rounds


# the two all-reduces ----------------------------------------------------------------------------


def same_bits(cluster: SimulatedCluster, name: str, cases: list[Case]) -> None:
    """All ranks end with the same bits, and right ones."""
    for case in cases:
        outcome = bench(cluster, name).run([case])
        results = [answers[0]["arguments"]["tensor"] for answers in outcome.outputs]
        try:
            assert_same_bits(results)
        except CheckFailed as failure:
            failure.message = f"{case.label}: {failure.message}"
            raise


@check("a1.all_reduce_pairwise", points=2, name="reduces into every rank's tensor")
def test_pairwise_values(cluster: SimulatedCluster, make: Maker) -> None:
    bench(cluster, "all_reduce_pairwise").run_all(
        over_worlds(make.all_reduce, NUMBERS), schedules=2
    )


@check("a1.all_reduce_pairwise", points=1, name="works in sub-groups and alone")
def test_pairwise_groups(cluster: SimulatedCluster, make: Maker) -> None:
    usual = [make.all_reduce(world, None, SPECS[0], 0, 0) for world in (2, 3)]
    bench(cluster, "all_reduce_pairwise").run_all(over_groups(make.all_reduce), usual)


@check("a1.all_reduce_pairwise", points=1, name="gives all ranks the same bits")
def test_pairwise_bits(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    cases = [Maker(rng, op).all_reduce(5, None, REORDER, 0, 0) for op in ("SUM", "AVG")]
    cases += [Maker(rng, "SUM").all_reduce(8, None, NARROW, 0, 0)]
    same_bits(cluster, "all_reduce_pairwise", cases)


@check("a1.all_reduce_pairwise", points=1, name="sends every rank's tensor to every other rank")
def test_pairwise_volume(cluster: SimulatedCluster, make: Maker, metrics: Metrics) -> None:
    trace = measure(
        cluster, "all_reduce_pairwise", make.all_reduce,
        lambda trace, _: volume.pairwise_volume(trace, NARROW_BYTES),
    )  # fmt: skip
    metrics["total_bytes"] = trace.total_bytes


@check("a1.all_reduce_pairwise", points=1, name="refuses operations it lacks")
def test_pairwise_refusals(cluster: SimulatedCluster) -> None:
    refuses(cluster, "all_reduce_pairwise", wrong_operations(lambda tensor: {"tensor": tensor}))


@check("a1.all_reduce_parameter_server", points=3, name="reduces into every rank's tensor")
def test_parameter_server_values(cluster: SimulatedCluster, make: Maker) -> None:
    bench(cluster, "all_reduce_parameter_server").run_all(
        over_worlds(make.parameter_server, NUMBERS), schedules=2
    )


@check("a1.all_reduce_parameter_server", points=1.5, name="works in sub-groups and alone")
def test_parameter_server_groups(cluster: SimulatedCluster, make: Maker) -> None:
    usual = [make.parameter_server(world, None, SPECS[0], 1, 0) for world in (2, 3)]
    bench(cluster, "all_reduce_parameter_server").run_all(over_groups(make.parameter_server), usual)


@check("a1.all_reduce_parameter_server", points=1, name="gives all ranks the same bits")
def test_parameter_server_bits(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    cases = [Maker(rng, op).parameter_server(5, None, REORDER, 3, 0) for op in ("SUM", "AVG")]
    cases += [Maker(rng, "SUM").parameter_server(8, None, NARROW, 0, 0)]
    same_bits(cluster, "all_reduce_parameter_server", cases)


@check(
    "a1.all_reduce_parameter_server",
    points=3,
    name="moves everything through the server in two rounds",
)
def test_parameter_server_volume(cluster: SimulatedCluster, make: Maker, metrics: Metrics) -> None:
    trace = measure(
        cluster, "all_reduce_parameter_server", make.parameter_server,
        lambda trace, root: volume.parameter_server_volume(trace, NARROW_BYTES, root),
    )  # fmt: skip
    server = MEASURED[-1] // 2
    metrics["bytes_sent_by_the_server"] = trace.bytes_sent[server]
    metrics["bytes_received_by_the_server"] = trace.bytes_received[server]
    metrics["bytes_sent_by_a_worker"] = trace.bytes_sent[server - 1]


@check(
    "a1.all_reduce_parameter_server",
    points=1.5,
    name="refuses a server outside the group and operations it lacks",
)
def test_parameter_server_refusals(cluster: SimulatedCluster) -> None:
    wrong = [{"tensor": tensor, "server": 3} for tensor in vectors()]
    negative = [{"tensor": tensor, "server": -4} for tensor in vectors()]
    cases = [
        refusal("server=3 of 3 ranks", wrong, ["server", "3"], op="SUM"),
        refusal("server=-4", negative, ["server", "-4"], op="SUM"),
        *wrong_operations(lambda tensor: {"tensor": tensor}),
    ]
    refuses(cluster, "all_reduce_parameter_server", cases)
