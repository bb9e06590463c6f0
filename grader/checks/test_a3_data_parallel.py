"""Checks of assignment 3: data parallelism with replicas, with a server, and in shards."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from grader.checks import a3_optimizer as optimizer
from grader.checks import a3_volume as volume
from grader.checks.a3_cases import (
    ADAMW,
    MIXED,
    MLP,
    MOMENTUM,
    ODD,
    Training,
    expected_steps,
    run,
    run_inputs,
    training,
    worlds_of,
)
from grader.checks.a3_judges import judge_replicas, judge_sharded, judge_start, judge_state
from grader.checks.a3_throughput import keeps_up
from grader.checks.framework import CheckFailed, check
from grader.checks.throughput import Throughput
from grader.checks.world import Outcome, SimulatedCluster

Cluster = SimulatedCluster
Rng = torch.Generator
Metrics = dict[str, Any]
DDP, SERVER = "DistributedDataParallel", "ParameterServerDataParallel"
FSDP = "FullyShardedDataParallel"


def answers_to(outcome: Outcome, number: int) -> list[Any]:
    """What every rank answered to a case."""
    return [answers[number] for answers in outcome.outputs]


def trains(cluster: Cluster, task: str, trainings: Sequence[Training], **options: Any) -> None:
    """All trainings come out as one process's."""
    for together in worlds_of(trainings):
        outcome = run(cluster, task, "replicas", together, **options)
        for number, case in enumerate(together):
            judge_replicas(case, answers_to(outcome, number))


def measured(cluster: Cluster, task: str, rng: Rng, world: int, **options: Any) -> Any:
    """One counted step after a quiet one: (trace, marks by rank)."""
    compute = options.pop("compute", False)
    case = training(rng, volume.MODEL, world, steps=2, rows=volume.ROWS, options=options, quiet=1)
    outcome = run(cluster, task, "replicas", [case], compute=compute)
    return outcome.trace, [answer["steps"][1]["marks"] for answer in answers_to(outcome, 0)]


# DistributedDataParallel ------------------------------------------------------------------------


def curves(rng: Rng) -> list[Training]:
    """Ordinary training, in worlds of several sizes, in a sub-group, with two dtypes."""
    return [
        training(rng, MLP, 1),
        training(rng, MLP, 2, optimizer=MOMENTUM),
        training(rng, MLP, 3),
        training(rng, MIXED, 3),
        training(rng, MLP, 4),
        training(rng, MLP, 4, (3, 0, 2), label="permuted"),
    ]


def odd_parameters(rng: Rng) -> list[Training]:
    """Unused on some ranks or on all, shared, frozen, strided and scalar parameters."""
    make = partial(training, rng, ODD, steps=3)
    return [
        make(2, branches=["left right", "left"]),
        make(3, branches=["left", "right", ""], optimizer=MOMENTUM),
        make(3, branches=["left right"] * 3),
        make(1, branches=["left"]),
    ]


@check(f"a3.{DDP}", 6, "trains as one process does, step by step")
def test_ddp_curves(cluster: Cluster, rng: Rng) -> None:
    small = [training(rng, MLP, 3, options={"bucket_bytes": n}) for n in (1, 200, 500)]
    trains(cluster, DDP, [*curves(rng), *small], schedules=2)


@check(f"a3.{DDP}", 2, "starts from the first rank's parameters and buffers")
def test_ddp_start(cluster: Cluster, rng: Rng) -> None:
    starts(cluster, DDP, rng)


def starts(cluster: Cluster, task: str, rng: Rng) -> None:
    same = ["left right"] * 3
    cases = [
        training(rng, ODD, 3, steps=1, branches=same),
        training(rng, ODD, 3, (2, 1, 0), steps=1, branches=same),
    ]
    outcome = run(cluster, task, "replicas", cases)
    for number, case in enumerate(cases):
        judge_start(case, answers_to(outcome, number))


@check(f"a3.{DDP}", 4, "averages unused, shared and frozen parameters rightly")
def test_ddp_odd_parameters(cluster: Cluster, rng: Rng) -> None:
    small = training(
        rng, ODD, 3, steps=3, branches=["left", "right", ""], options={"bucket_bytes": 300}
    )
    trains(cluster, DDP, [*odd_parameters(rng), small])


@check(f"a3.{DDP}", 3, "accumulates under no_sync, and sends nothing meanwhile")
def test_ddp_no_sync(cluster: Cluster, rng: Rng) -> None:
    accumulates(cluster, DDP, rng)


def accumulates(cluster: Cluster, task: str, rng: Rng) -> None:
    branches = ["left", "right", "left right"]
    cases = [
        training(rng, MLP, 3, steps=2, micro_batches=3, label="3 micro-batches"),
        training(rng, ODD, 3, steps=2, micro_batches=2, branches=branches, label="2 micro-batches"),
    ]
    trains(cluster, task, cases)
    outcome = run(cluster, task, "replicas", [cases[0]])
    for rank, answer in enumerate(answers_to(outcome, 0)):
        for number, step in enumerate(answer["steps"]):
            first, last, *_ = step["marks"]
            sent = volume.posted(outcome.trace, rank, first, last)
            if sent:
                raise CheckFailed(
                    f"{cases[0].label}: step {number + 1}, rank {rank} sent "
                    f"{sum(nbytes for _, nbytes in sent)} bytes before the last backward, expected "
                    f"none",
                    cause="no_sync() does not keep backward from sending",
                )


@check(f"a3.{DDP}", 4, "begins half of its traffic before backward ends")
def test_ddp_begins_early(cluster: Cluster, rng: Rng, metrics: Metrics) -> None:
    for buckets in (1, 2):
        trace, marks = measured(cluster, DDP, rng, 3, bucket_bytes=buckets * volume.UNIT_BYTES)
        volume.begins_during_backward(trace, marks, metrics)


@check(f"a3.{DDP}", 2, "hides communication behind backward")
def test_ddp_overlap(cluster: Cluster, rng: Rng, metrics: Metrics) -> None:
    trace, _ = measured(cluster, DDP, rng, 4, bucket_bytes=volume.UNIT_BYTES, compute=True)
    volume.hides_all_reduces(trace, 4, metrics)


@check(f"a3.{DDP}", 2.5, "moves each gradient once, in buckets")
def test_ddp_buckets(cluster: Cluster, rng: Rng, metrics: Metrics) -> None:
    nbytes, parameters = volume.bytes_of(volume.MODEL), volume.parameters_of(volume.MODEL)
    largest = 8 * volume.WIDTH * volume.WIDTH
    for world, bucket_bytes in ((2, 3 * volume.UNIT_BYTES), (3, 25 << 20)):
        trace, marks = measured(cluster, DDP, rng, world, bucket_bytes=bucket_bytes)
        volume.average_moves_at_most(trace, nbytes, parameters, metrics)
        for rank in range(world):
            volume.in_buckets(trace, rank, marks[rank], bucket_bytes, nbytes, largest)


def refuses(cluster: Cluster, task: str, rng: Rng, name: str, values: Sequence[int]) -> None:
    for value in values:
        case = training(rng, MLP, 3, steps=1, options={name: value}, extra={"refused": True})
        outcome = run(cluster, task, "replicas", [case])
        for rank, answer in enumerate(answers_to(outcome, 0)):
            error = answer.get("error")
            if error is None or error["type"] != "ValueError":
                raise CheckFailed(
                    f"{name}={value}, rank {rank}: expected ValueError, got "
                    f"{'no exception' if error is None else error['type']}"
                )
            if name not in error["message"] or str(value) not in error["message"]:
                raise CheckFailed(
                    f"{name}={value}, rank {rank}: the message names not both the argument and its "
                    f"value: {error['message']!r}"
                )
        if sum(outcome.trace.bytes_sent):
            raise CheckFailed(f"{name}={value}: something was sent before it was refused")


@check(f"a3.{DDP}", 0.5, "refuses buckets of no bytes")
def test_ddp_refusals(cluster: Cluster, rng: Rng) -> None:
    refuses(cluster, DDP, rng, "bucket_bytes", (0, -1))


@check(f"a3.{DDP}", 8, "keeps up with the library's")
def test_ddp_throughput(throughput: Throughput) -> None:
    keeps_up(throughput)


# ParameterServerDataParallel ----------------------------------------------------------------------


@check(f"a3.{SERVER}", 4, "trains as one process does, step by step")
def test_server_curves(cluster: Cluster, rng: Rng) -> None:
    others = [
        training(rng, MLP, 3, options={"server": 2}),
        training(rng, MLP, 4, (3, 0, 2), label="server 1", options={"server": 1}),
    ]
    trains(cluster, SERVER, [*curves(rng), *others])


@check(f"a3.{SERVER}", 1, "starts from the first rank's parameters and buffers")
def test_server_start(cluster: Cluster, rng: Rng) -> None:
    starts(cluster, SERVER, rng)


@check(f"a3.{SERVER}", 1.5, "averages unused, shared and frozen parameters rightly")
def test_server_odd_parameters(cluster: Cluster, rng: Rng) -> None:
    trains(cluster, SERVER, odd_parameters(rng))


@check(f"a3.{SERVER}", 1, "accumulates under no_sync, and sends nothing meanwhile")
def test_server_no_sync(cluster: Cluster, rng: Rng) -> None:
    accumulates(cluster, SERVER, rng)


@check(f"a3.{SERVER}", 3, "moves everything through the server, once each way")
def test_server_traffic(cluster: Cluster, rng: Rng, metrics: Metrics) -> None:
    nbytes, parameters = volume.bytes_of(volume.MODEL), volume.parameters_of(volume.MODEL)
    for world, server in ((3, 0), (5, 3)):
        trace, _ = measured(cluster, SERVER, rng, world, server=server)
        volume.through_the_server(trace, server, nbytes, parameters, metrics)


@check(f"a3.{SERVER}", 1, "keeps the server's link busy")
def test_server_time(cluster: Cluster, rng: Rng, metrics: Metrics) -> None:
    nbytes, parameters = volume.bytes_of(volume.MODEL), volume.parameters_of(volume.MODEL)
    trace, _ = measured(cluster, SERVER, rng, 5, server=1)
    volume.as_fast_as_the_server(trace, nbytes, parameters, metrics)


@check(f"a3.{SERVER}", 0.5, "refuses a server outside the group")
def test_server_refusals(cluster: Cluster, rng: Rng) -> None:
    refuses(cluster, SERVER, rng, "server", (3, -1))


# ShardedOptimizer ---------------------------------------------------------------------------------


@check("a3.ShardedOptimizer", 5, "steps as the whole optimizer does")
def test_optimizer_steps(cluster: Cluster, rng: Rng) -> None:
    make = partial(optimizer.stepping, rng)
    cases = [
        make(MLP, 1, spec=ADAMW),
        make(MLP, 2, spec=MOMENTUM),
        make(ODD, 3, spec=ADAMW),
        make(MIXED, 3, spec=ADAMW),
        make(MLP, 4, spec=ADAMW),
        make(MLP, 4, (3, 0, 2), spec=MOMENTUM),
        make(MLP, 12, spec=ADAMW, steps=2),  # more ranks than parameters
        make(MLP, 2, spec=ADAMW, steps=2, events=[{"closure": True}, {}]),
        make(MLP, 2, spec=ADAMW | {"class": "torch.optim.AdamW"}, steps=2),
    ]
    optimizer.steps_alike(cluster, cases)


@check("a3.ShardedOptimizer", 5, "keeps the states of its share only, and shares alike")
def test_optimizer_shares(cluster: Cluster, rng: Rng, metrics: Metrics) -> None:
    optimizer.keeps_shares(cluster, rng, metrics)


@check("a3.ShardedOptimizer", 1.5, "leaves the same bits on every rank")
def test_optimizer_bits(cluster: Cluster, rng: Rng) -> None:
    optimizer.same_everywhere(cluster, rng)


@check("a3.ShardedOptimizer", 3, "moves each parameter once")
def test_optimizer_traffic(cluster: Cluster, rng: Rng, metrics: Metrics) -> None:
    for world in (2, 4):
        case = optimizer.stepping(rng, volume.MODEL, world, spec=ADAMW, steps=1)
        trace = optimizer.run_cases(cluster, [case]).trace
        volume.parameters_move_once(trace, volume.bytes_of(volume.MODEL), metrics)


@check("a3.ShardedOptimizer", 2.5, "honours parameter groups and options that change")
def test_optimizer_groups(cluster: Cluster, rng: Rng) -> None:
    optimizer.steps_alike(cluster, optimizer.grouped(rng))


@check("a3.ShardedOptimizer", 3, "saves its share and goes on from it")
def test_optimizer_state(cluster: Cluster, rng: Rng) -> None:
    optimizer.steps_alike(cluster, optimizer.reloaded(rng))
    optimizer.another_world(cluster, rng)


# FullyShardedDataParallel -------------------------------------------------------------------------


def sharded(rng: Rng, model: Any, world: int, units: Sequence[str], **more: Any) -> Training:
    """A training with inner units; the model's own keys are asked for at its ends."""
    extra = {"units": list(units), "forward_only": False, "states": True}
    extra |= more.pop("extra", {})
    return training(rng, model, world, same_start=True, extra=extra, **more)


def trains_sharded(cluster: Cluster, cases: Sequence[Training], **options: Any) -> None:
    for together in worlds_of(cases):
        outcome = run(cluster, FSDP, "fully_sharded", together, **options)
        for number, case in enumerate(together):
            judge_sharded(case, answers_to(outcome, number))


@check(f"a3.{FSDP}", 6, "trains as one process does, step by step")
def test_sharded_curves(cluster: Cluster, rng: Rng) -> None:
    blocks = ["blocks.0", "blocks.1", "blocks.2"]
    odd = ["first", "second", "left", "right", "spare"]
    cases = [
        sharded(rng, MLP, 1, blocks),
        sharded(rng, MLP, 2, ["stem", *blocks, "head"], optimizer=MOMENTUM),
        sharded(rng, MLP, 3, blocks),
        sharded(rng, MLP, 3, []),
        sharded(rng, MIXED, 3, ["stem"]),
        sharded(rng, ODD, 2, odd[2:4], branches=["left right"] * 2, steps=3),
        sharded(rng, MLP, 4, blocks, micro_batches=2),
        sharded(rng, MLP, 4, [*blocks, "head"], ranks=(3, 0, 2)),
    ]
    trains_sharded(cluster, cases, schedules=2)


@check(f"a3.{FSDP}", 3, "holds nothing but shards between steps")
def test_sharded_between(cluster: Cluster, rng: Rng, metrics: Metrics) -> None:
    figures = memory(cluster, rng)
    volume.holds_little(figures, WORLD, metrics, ("constructed", "between"))


@check(f"a3.{FSDP}", 6, "holds no more than shards and two units of parameters at once")
def test_sharded_peak(cluster: Cluster, rng: Rng, metrics: Metrics) -> None:
    figures = memory(cluster, rng)
    volume.holds_little(figures, WORLD, metrics, ("forward", "after_forward", "backward"))


WORLD = 4


def memory(cluster: Cluster, rng: Rng) -> list[dict[str, int]]:
    """Live bytes of every rank."""
    case = training(rng, volume.MODEL, WORLD, steps=1, rows=1, same_start=True)
    inputs = [
        {
            "model": volume.MODEL,
            "state": case.states[0],
            "batch": case.batches[0][rank][0],
            "units": volume.UNITS,
        }
        for rank in range(WORLD)
    ]
    return list(run_inputs(cluster, FSDP, "fully_sharded_memory", inputs).outputs)


def one_step(cluster: Cluster, rng: Rng, world: int, **options: Any) -> Any:
    """The trace of one counted step, after a quiet one."""
    extra = {"states": False, "forward_only": options.pop("forward_only", False)}
    case = sharded(
        rng, volume.MODEL, world, volume.UNITS, steps=2, rows=volume.ROWS, quiet=1, extra=extra
    )
    return run(cluster, FSDP, "fully_sharded", [case], **options).trace


@check(f"a3.{FSDP}", 4, "moves no more than two gathers and a reduce-scatter")
def test_sharded_traffic(cluster: Cluster, rng: Rng, metrics: Metrics) -> None:
    for world in (2, 4):
        trace = one_step(cluster, rng, world)
        volume.fully_sharded_moves_at_most(trace, volume.bytes_of(volume.MODEL), metrics)


@check(f"a3.{FSDP}", 4, "gathers the next unit while this one computes")
def test_sharded_prefetch(cluster: Cluster, rng: Rng, metrics: Metrics) -> None:
    for forward_only, what in ((True, "forward"), (False, "whole step")):
        trace = one_step(cluster, rng, 4, compute=True, forward_only=forward_only)
        volume.prefetches(trace, 4, what, metrics)


@check(f"a3.{FSDP}", 3, "gathers the whole state dict, under the module's own names")
def test_sharded_state_dict(cluster: Cluster, rng: Rng) -> None:
    cases = [
        sharded(rng, MLP, 3, ["stem", "blocks.1"], steps=1),
        sharded(rng, ODD, 3, ["left"], steps=1, branches=["left right"] * 3),
    ]
    outcome = run(cluster, FSDP, "fully_sharded", cases)
    for number, case in enumerate(cases):
        first, *_, last = expected_steps(case)
        for rank, answer in enumerate(answers_to(outcome, number)):
            where = f"{case.label}: rank {rank}, gather_full_state_dict()"
            judge_state(case, answer["before"], first, f"{where} after wrapping", exact=True)
            judge_state(case, answer["after"], last, f"{where} after a step")
