"""The checks of assignment 1.

Tables hold what is checked of every collective in the same way; functions, what is checked of one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from grader.checks import a1_rendezvous as parts
from grader.checks import a1_slices as slices
from grader.checks import a1_volume as volume
from grader.checks.a1_cases import (
    GROUP_WORLD,
    NUMBERS,
    SPECS,
    Spec,
    expect_new_memory,
    expect_refusal,
    expect_unchanged,
    needs_of,
    over_groups,
    over_worlds,
    ranks_of,
)
from grader.checks.a1_makers import Maker
from grader.checks.a1_refusals import REFUSALS
from grader.checks.causes import Bench, Case, heard_of
from grader.checks.compare import assert_same_bits
from grader.checks.framework import CheckFailed, check
from grader.checks.world import SimulatedCluster
from grader.fabric.trace import Trace

Metrics = dict[str, Any]

NARROW: Spec = (torch.bfloat16, (48,), False)
NBYTES = 96  # of such a tensor
MEASURED = (5, 8)  # ranks of the worlds in which volume is measured
REORDER: Spec = (torch.float32, (257,), False)  # long enough that another order shows


@pytest.fixture
def make(rng: torch.Generator) -> Maker:
    """Makes cases with random inputs."""
    return Maker(rng)


def bench(cluster: SimulatedCluster, name: str) -> Bench:
    """Runs cases of task a1.`name`."""
    return Bench(cluster, f"a1.{name}", "a1:collective", needs=partial(needs_of, name))


def row(name: str, points: float, demand: str, *values: object) -> Any:
    """A row of a table of checks: `values` after the function's name."""
    mark = pytest.mark.check(task=f"a1.{name}", points=float(points), name=demand)
    return pytest.param(name, *values, marks=mark, id=name)


# what is checked of all in the same way -----------------------------------------------------------

VALUES = (
    row("neighbour_exchange", 4, "returns both neighbours' tensors", SPECS),
    row("broadcast", 3, "copies the root's tensor to every rank", SPECS),
    row("scatter", 2, "gives each rank its tensor and keeps the root's list", SPECS),
    row("gather", 2, "collects every rank's tensor on the root", SPECS),
    row("reduce", 3, "reduces into the root's tensor", NUMBERS),
    row("all_gather", 4, "collects every rank's tensor on every rank", SPECS),
    row("reduce_scatter", 3.5, "reduces entry i of all lists onto rank i", NUMBERS),
    row("all_reduce_pairwise", 2, "reduces into every rank's tensor", NUMBERS),
    row("all_reduce_parameter_server", 3, "reduces into every rank's tensor", NUMBERS),
)


@pytest.mark.parametrize(("name", "specs"), VALUES)
def test_values(cluster: SimulatedCluster, make: Maker, name: str, specs: tuple[Spec, ...]) -> None:
    bench(cluster, name).run_all(over_worlds(make.of(name), specs), schedules=2)


IN_GROUPS = "works in sub-groups and alone"
GROUPS = (
    row("neighbour_exchange", 1.5, IN_GROUPS),
    row("broadcast", 2, IN_GROUPS),
    row("scatter", 1, IN_GROUPS),
    row("gather", 1, IN_GROUPS),
    row("reduce", 1.5, IN_GROUPS),
    row("all_gather", 2, IN_GROUPS),
    row("reduce_scatter", 2, IN_GROUPS),
    row("all_reduce_pairwise", 1, IN_GROUPS),
    row("all_reduce_parameter_server", 1.5, IN_GROUPS),
)


@pytest.mark.parametrize("name", GROUPS)
def test_groups(cluster: SimulatedCluster, rng: torch.Generator, name: str) -> None:
    maker, averages = Maker(rng).of(name), Maker(rng, "AVG").of(name)
    cases = [*over_groups(maker), averages(GROUP_WORLD, (4, 1, 2), SPECS[0], 1, 0)]
    # For comparison: every operation that occurs above, in the default group.
    usual = [maker(2, None, SPECS[0], 1, 0)]
    for op in dict.fromkeys(case.op for case in cases):
        usual.append(Maker(rng, op).of(name)(3, None, SPECS[0], 1, 0))
    bench(cluster, name).run_all(cases, usual)


def logarithmic(trace: Trace, _: int, __: int) -> None:
    """At most ⌈log₂ p⌉ rounds."""
    volume.rounds(trace, volume.log2_ceiling(len(trace.bytes_sent)))


VOLUME = (
    row("neighbour_exchange", 1, "talks to its two neighbours only", volume.neighbours),
    row("broadcast", 2, "sends no more than a binomial tree", volume.broadcast_tree),
    row("broadcast", 2, "needs no more rounds than a binomial tree", logarithmic),
    row("scatter", 1, "sends each rank its own tensor and nothing else", volume.scatter_volume),
    row("gather", 1, "brings the root each tensor once", volume.gather_volume),
    row("reduce", 2, "sends no more than a tree", volume.reduce_tree),
    row("reduce", 1.5, "needs no more rounds than a tree", logarithmic),
    row("all_gather", 3, "receives only what it lacks", volume.all_gather_volume),
    row(
        "reduce_scatter",
        2.5,
        "sends each entry only to the rank that reduces it",
        volume.reduce_scatter_volume,
    ),
    row(
        "all_reduce_pairwise",
        1,
        "sends every rank's tensor to every other rank",
        volume.pairwise_volume,
    ),
    row(
        "all_reduce_parameter_server",
        3,
        "moves everything through the server in two rounds",
        volume.parameter_server_volume,
    ),
)


@pytest.mark.parametrize(("name", "judge"), VOLUME)
def test_volume(
    cluster: SimulatedCluster,
    make: Maker,
    metrics: Metrics,
    name: str,
    judge: Callable[[Trace, int, int], None],
) -> None:
    for world in MEASURED:
        root = world // 2
        case = make.of(name)(world, None, NARROW, root, 0)
        hint = world == MEASURED[0] and judge is not logarithmic
        trace = bench(cluster, name).run([case], nccl_hint=hint).trace
        judge(trace, NBYTES, root)
    metrics |= {
        "ranks": world,
        "tensor_bytes": NBYTES,
        "rounds": trace.rounds,
        "most_bytes_sent_by_a_rank": max(trace.bytes_sent),
        "most_bytes_received_by_a_rank": max(trace.bytes_received),
        "most_messages_sent_by_a_rank": max(trace.messages_sent),
    }
    if name == "all_reduce_parameter_server":
        metrics["bytes_sent_by_the_server"] = trace.bytes_sent[root]
        metrics["bytes_received_by_the_server"] = trace.bytes_received[root]
        metrics["bytes_sent_by_a_worker"] = trace.bytes_sent[root - 1]


REFUSES = (
    row("broadcast", 1, "refuses a root outside the group"),
    row("scatter", 1, "refuses arguments that do not fit"),
    row("gather", 1, "refuses arguments that do not fit"),
    row("reduce", 1, "refuses a root outside the group and operations it lacks"),
    row("all_gather", 1, "refuses lists that do not fit"),
    row("reduce_scatter", 1, "refuses lists that do not fit and operations it lacks"),
    row("all_to_all_single", 2, "refuses split sizes that do not fit"),
    row("all_reduce_pairwise", 1, "refuses operations it lacks"),
    row(
        "all_reduce_parameter_server",
        1.5,
        "refuses a server outside the group and operations it lacks",
    ),
)


@pytest.mark.parametrize("name", REFUSES)
def test_refusals(cluster: SimulatedCluster, name: str) -> None:
    bench(cluster, name).run_all(REFUSALS[name]())


BITS = (
    row("all_reduce_pairwise", 1, "gives all ranks the same bits"),
    row("all_reduce_parameter_server", 1, "gives all ranks the same bits"),
)


@pytest.mark.parametrize("name", BITS)
def test_same_bits(cluster: SimulatedCluster, rng: torch.Generator, name: str) -> None:
    for world, kinds in ((5, (("SUM", REORDER), ("AVG", REORDER))), (8, (("SUM", NARROW),))):
        cases = [Maker(rng, op).of(name)(world, None, spec, 3, 0) for op, spec in kinds]
        outcome = bench(cluster, name).run(cases)
        for number, case in enumerate(cases):
            results = [answers[number]["arguments"]["tensor"] for answers in outcome.outputs]
            try:
                assert_same_bits(results)
            except CheckFailed as failure:
                failure.message = f"{case.label}: {failure.message}"
                raise


# arguments that must stay as they are -------------------------------------------------------------


@check("a1.neighbour_exchange", points=1.5, name="returns new tensors and keeps its argument")
def test_neighbour_exchange_new_tensors(cluster: SimulatedCluster, make: Maker) -> None:
    for world in (1, 2, 3):
        case = make.neighbour_exchange(world, None, SPECS[0], 0, 0)
        outcome = bench(cluster, "neighbour_exchange").run([case])
        for rank, (answer,) in enumerate(outcome.outputs):
            where = f"{case.label}, rank {rank}"
            expect_new_memory(answer, list(answer["returned"]), where)
            before = case.arguments[rank]["tensor"]
            after = answer["arguments"]["tensor"]
            expect_unchanged(after, before, "tensor", where, "`tensor` must not be written to")


@check("a1.reduce", points=1, name="leaves the other ranks' tensors alone")
def test_reduce_keeps_tensors(cluster: SimulatedCluster, make: Maker) -> None:
    bench(cluster, "reduce").run_all(
        [
            make.reduce(world, None, SPECS[n], n % 2, n, only_root=False)
            for world in (4, 5)
            for n in range(4)
        ]
    )


@check("a1.reduce_scatter", points=1, name="leaves its inputs alone")
def test_reduce_scatter_keeps_inputs(cluster: SimulatedCluster, make: Maker) -> None:
    bench(cluster, "reduce_scatter").run_all(
        [
            make.reduce_scatter(world, None, SPECS[n], 0, n, inputs_too=True)
            for world in (1, 3, 4)
            for n in range(4)
        ]
    )


# rendezvous ---------------------------------------------------------------------------------------


@check("a1.rendezvous", points=2.5, name="tells every rank every address, in order of rank")
def test_rendezvous_addresses(cluster: SimulatedCluster) -> None:
    for world in (1, 2, 5):
        # Ranks of the job need not be numbered as the simulated ones are.
        places = [(3 * rank + 1) % world for rank in range(world)]
        addresses = [f"knoten-{7 * place}.例:{2900 + place}" for place in range(world)]
        case = [parts.comer(place, world, addresses[place]) for place in places]
        (answers,) = parts.meet(cluster, [case], schedules=2)
        for place, answer in zip(places, answers, strict=True):
            parts.judge_addresses(answer, addresses, f"{ranks_of(world)}, rank {place}")


@check("a1.rendezvous", points=1.5, name="names exactly the missing ranks when time is up")
def test_rendezvous_missing(cluster: SimulatedCluster) -> None:
    (answers,) = parts.meet(cluster, [parts.with_gaps(0.1)])
    for rank, answer in enumerate(answers):
        if answer is None:
            continue
        parts.judge_missing(rank, answer)


@check("a1.rendezvous", points=1, name="spends its timeout once, however many ranks are missing")
def test_rendezvous_timeout(cluster: SimulatedCluster) -> None:
    timeout = 0.1
    (answers,) = parts.meet(cluster, [parts.with_gaps(timeout)])
    for rank, answer in enumerate(answers):
        if answer is None:
            continue
        error = answer["error"]
        if error is None or error["type"] != "TimeoutError":
            came = f"{error['type']}: {error['message']}" if error else answer["returned"]
            raise CheckFailed(
                f"rank {rank}: expected TimeoutError, got {came}",
                cause="a missing rank does not end in TimeoutError",
            )
        asked = sum(answer["in_vain"])
        if asked > 1.5 * timeout:
            raise CheckFailed(
                f"rank {rank} asked the store to wait {asked:.2f} s in all for ranks that never "
                f"came, expected no more than the timeout of {timeout} s",
                cause="every missing rank gets the whole timeout again: keep a deadline",
            )


@check("a1.rendezvous", points=1, name="refuses arguments that make no sense")
def test_rendezvous_refusals(cluster: SimulatedCluster) -> None:
    wrong = (
        (parts.comer(0, 0, "a", 0.05), ["world_size", "0"]),
        (parts.comer(3, 3, "a", 0.05), ["rank", "3"]),
        (parts.comer(-1, 3, "a", 0.05), ["rank", "-1"]),
        (parts.comer(0, 1, "", 0.05), ["address"]),
        (parts.comer(0, 1, "a", timeout=0.0), ["timeout"]),
        (parts.comer(0, 1, "a", timeout=-1.0), ["timeout"]),
    )
    for (answer,), (part, names) in zip(
        parts.meet(cluster, [[part] for part, _ in wrong]), wrong, strict=True
    ):
        where = f"called with {part['arguments']}"
        expect_refusal(answer["error"], names, where)
        if answer["written"]:
            raise CheckFailed(
                f"{where}: the store was written to before the error",
                cause="arguments are checked too late",
            )


# all_to_all_single ------------------------------------------------------------------------------


@check("a1.all_to_all_single", points=5, name="sends every slice to its rank")
def test_all_to_all_values(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    bench(cluster, "all_to_all_single").run_all(slices.usual_cases(rng), schedules=2)


@check("a1.all_to_all_single", points=3, name="copes with empty slices and idle ranks")
def test_all_to_all_empty(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    usual = [slices.all_to_all(rng, 3, None, SPECS[0], slices.UNEVEN)]
    bench(cluster, "all_to_all_single").run_all(slices.empty_cases(rng), usual, schedules=2)


@check("a1.all_to_all_single", points=2, name="works in sub-groups and alone")
def test_all_to_all_groups(cluster: SimulatedCluster, rng: torch.Generator) -> None:
    usual = [slices.all_to_all(rng, 3, None, SPECS[0], slices.UNEVEN)]
    bench(cluster, "all_to_all_single").run_all(slices.group_cases(rng), usual)


@check("a1.all_to_all_single", points=4, name="sends every byte once, straight to its rank")
def test_all_to_all_volume(
    cluster: SimulatedCluster, rng: torch.Generator, metrics: Metrics
) -> None:
    for rows in (slices.EVEN, slices.UNEVEN_FOUR, slices.ALL_TO_ONE):
        case = slices.all_to_all(rng, len(rows), None, NARROW, rows, (16,))
        outcome = bench(cluster, "all_to_all_single").run(
            [case], nccl_hint=rows is slices.UNEVEN_FOUR
        )
        volume.all_to_all_volume(outcome.trace, rows, row_bytes=32)
    metrics["total_bytes"] = outcome.trace.total_bytes


# barrier ----------------------------------------------------------------------------------------


def barrier_case(world: int, ranks: tuple[int, ...] | None = None) -> Case:
    """One call of the barrier; the trace judges it."""
    label = ranks_of(world) if ranks is None else f"group {list(ranks)}"
    return Case(label, [{} for _ in range(world)], lambda answers: None, ranks=ranks)


def run_barrier(cluster: SimulatedCluster, case: Case, nccl_hint: bool = False) -> Trace:
    """Run a barrier and demand that word of every rank reached every rank."""
    trace = bench(cluster, "barrier").run([case], nccl_hint=nccl_hint).trace
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
                failure.cause = (
                    f"right for a power of two, wrong for {world} ranks: ⌈log₂ n⌉ rounds, each "
                    f"with partners (rank ± 2^k) mod n, which always exist ({failure.cause})"
                )
            raise


@check("a1.barrier", points=1, name="works in sub-groups and alone")
def test_barrier_groups(cluster: SimulatedCluster) -> None:
    run_barrier(cluster, barrier_case(1))
    run_barrier(cluster, barrier_case(6, (4, 1, 2)))
    run_barrier(cluster, barrier_case(6, (5, 0, 3, 2)))


@check("a1.barrier", points=1.5, name="takes the rounds and messages of a dissemination barrier")
def test_barrier_volume(cluster: SimulatedCluster, metrics: Metrics) -> None:
    for world in (5, 8):
        trace = run_barrier(cluster, barrier_case(world), nccl_hint=world == 5)
        volume.barrier_volume(trace)
    metrics["rounds"] = trace.rounds
