"""Two contenders in turn: who does the work gets its ratio, who does not gets nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from grader.checks import problems
from grader.harness import Limits, WorkerServer, processes
from grader.harness.throughput import Measurement, Plan, compare, median_interval, settled
from grader.harness.throughput_buffers import Buffers, attach
from grader.harness.throughput_series import measure
from grader.harness.throughput_world import Contender
from grader.harness.worlds import WorldFailed

TARGETS = "tests.throughput.targets"
KIT = Path(__file__).resolve().parents[2]
RANKS = 3
TIMED = problems.all_reduce(RANKS, 1 << 18)
# Bounds that decide nothing: these tests are about what is measured, not about how fast it is.
PLAN = Plan(floor=1e-6, full=1e-3, least=3, most=3, second_look=False)


@pytest.fixture(scope="module")
def shared() -> Iterator[WorkerServer]:
    preload = [TARGETS, "grader.harness.worlds_rank", "grader.harness.throughput_rank"]
    with WorkerServer(preload=preload, path=[KIT]) as server:
        server.wait_ready()
        yield server


@pytest.fixture
def server(shared: WorkerServer) -> Iterator[WorkerServer]:
    """A server that has nothing below it, in memory or on disk, after each test."""
    fds = len(os.listdir("/proc/self/fd"))
    yield shared
    assert processes.children(shared.pid) == []
    assert len(os.listdir("/proc/self/fd")) == fds
    assert os.listdir(shared.lend(lambda running: running.directory)) == []


def contender(name: str, allow: str | None = None) -> Contender:
    return Contender(name, f"{TARGETS}:{name}", [None] * RANKS, allow)


def against_the_library(
    server: WorkerServer, name: str, allow: str | None = None, seconds: float = 30.0
) -> Measurement:
    return compare(
        server,
        contender(name, allow),
        Contender("baseline", f"{TARGETS}:library", [None] * RANKS),
        TIMED.problem,
        PLAN,
        limits=Limits(wall_seconds=seconds),
    )


def test_both_are_timed_pair_by_pair(server: WorkerServer) -> None:
    measured = against_the_library(server, "library")
    assert measured.wrong is None and measured.replaced == []
    assert len(measured.student_seconds) == len(measured.baseline_seconds) == 3
    assert measured.ratio == sorted(measured.ratios)[1] > 0
    assert measured.fraction(PLAN) == 1.0


def test_more_work_takes_more_time(server: WorkerServer) -> None:
    plan = Plan(floor=1e-6, full=1e3, least=9, most=9, second_look=False)
    measured = compare(server, contender("far_too_much"), contender("library"), TIMED.problem, plan)
    assert measured.ratio < 1.0


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("nothing", "nothing was done in this call"),
        ("keeps_the_first_result", "the result of an earlier call"),
        ("works_in_every_third_call", None),
        ("goes_on_in_a_thread", "nothing was done in this call"),
        ("works_between_calls", None),
        ("nan", None),
    ],
)
def test_a_result_that_is_not_there_at_done_counts_for_nothing(
    server: WorkerServer, name: str, cause: str | None
) -> None:
    measured = against_the_library(server, name)
    assert measured.wrong is not None
    assert measured.wrong.message.startswith("rank 0: ")
    assert "expected" in measured.wrong.message
    assert measured.fraction(PLAN) == measured.ratio == 0.0
    if cause is not None:
        assert measured.wrong.cause is not None and cause in measured.wrong.cause


def test_data_that_went_past_the_network_counts_for_nothing(server: WorkerServer) -> None:
    measured = against_the_library(server, "past_the_network")
    assert measured.wrong is not None
    assert "bytes over the network" in measured.wrong.message


def test_functions_that_were_replaced_are_named(server: WorkerServer) -> None:
    measured = against_the_library(server, "patches")
    assert measured.wrong is None
    assert measured.replaced == ["time.perf_counter", "torch.allclose"]


def test_the_baseline_runs_where_the_students_patches_are_not(server: WorkerServer) -> None:
    measured = against_the_library(server, "slows_the_library")
    assert measured.replaced == ["torch.distributed.all_reduce"]
    assert max(measured.baseline_seconds) < 3.0  # what the patch would add


def test_forbidden_calls_end_the_measurement(server: WorkerServer) -> None:
    with pytest.raises(WorldFailed, match="ForbiddenCall: called all_reduce"):
        against_the_library(server, "calls_the_library", allow="p2p")
    assert against_the_library(server, "calls_the_library").wrong is None


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("dies_in_the_third_call", "died", "rank 1: killed by SIGKILL"),
        ("hangs", "timeout", "rank 1: no result within 2 seconds; the others wait"),
        ("cannot_prepare", "raised", "NotImplementedError: a2.ring_all_reduce"),
        ("leaves", "died", "os._exit(0)"),
    ],
)
def test_a_world_that_fails_says_how(
    server: WorkerServer, name: str, status: str, words: str
) -> None:
    with pytest.raises(WorldFailed) as failed:
        against_the_library(server, name, seconds=2.0 if name == "hangs" else 30.0)
    assert failed.value.reply.status == status
    assert words in failed.value.reply.detail


def test_a_baseline_that_is_wrong_is_a_fault_of_ours(server: WorkerServer) -> None:
    with pytest.raises(RuntimeError, match="the baseline of this measurement is wrong: rank 0"):
        compare(server, contender("library"), contender("nothing"), TIMED.problem, PLAN)
    with pytest.raises(RuntimeError, match="the baseline of this measurement failed"):
        compare(server, contender("library"), contender("cannot_prepare"), TIMED.problem, PLAN)


def test_the_examiners_memory_cannot_be_taken_away(server: WorkerServer) -> None:
    assert against_the_library(server, "shrinks_the_memory").wrong is None


def test_a_second_look_is_taken_before_points_are_lost(server: WorkerServer) -> None:
    impossible = Plan(floor=0.0, full=1e6, least=1, most=1)
    measured = compare(
        server, contender("library"), contender("far_too_much"), TIMED.problem, impossible
    )
    assert (measured.looks, len(measured.ratios)) == (2, 1)


def test_series_count_wrong_elements_and_keep_going(server: WorkerServer) -> None:
    names = ["library", "nothing", "cannot_prepare", "dies_in_the_third_call"]
    series = measure(
        server, [contender(name) for name in names], TIMED.problem, rounds=2, warm_ups=1
    )
    numel = 1 << 16
    assert [len(each.seconds) for each in series] == [2, 2, 0, 1]
    assert series[0].wrong == 0
    assert 0.99 * 3 * RANKS * numel < series[1].wrong <= 3 * RANKS * numel
    assert series[2].failure is not None and series[2].failure.status == "raised"
    assert series[3].failure is not None and series[3].failure.rank == 1


def test_series_of_several_steps_are_verified_by_one(server: WorkerServer) -> None:
    series = measure(
        server, [contender("library"), contender("nothing")], TIMED.problem, 2, repeats=3
    )
    assert series[0].wrong == 0 < series[1].wrong


def test_the_interval_of_a_median() -> None:
    # Binomial(n, 1/2): the chance that the median lies outside is at most 5 %.
    assert median_interval(range(1, 8)) == (1, 7)
    assert median_interval(range(1, 10)) == (2, 8)
    assert median_interval(range(1, 21)) == (6, 15)
    assert median_interval([4, 9, 1]) == (1, 9)
    assert median_interval([5]) == (5, 5)


def measured(*ratios: float) -> Measurement:
    return Measurement([1.0] * len(ratios), list(ratios))


def test_points_grow_linearly_from_the_floor_to_the_full_mark() -> None:
    plan = Plan(floor=0.4, full=0.8)
    assert [measured(r).fraction(plan) for r in (0.1, 0.4, 0.8, 2.0)] == [0, 0, 1, 1]
    assert measured(0.5).fraction(plan) == pytest.approx(0.25)


def test_more_pairs_are_run_only_while_they_could_matter() -> None:
    plan = Plan(floor=0.4, full=0.8)
    assert settled(measured(0.9, 1.5, 3.0), plan)
    assert settled(measured(0.1, 0.2, 0.4), plan)
    assert not settled(measured(0.5, 0.6, 0.7), plan)
    assert not settled(measured(0.7, 0.9, 0.9), plan)
    assert settled(measured(0.59, 0.6, 0.61), plan)


def test_buffers_are_shared_and_cannot_be_resized() -> None:
    buffers = Buffers(
        {"a": ((3, 2), torch.float32), "b": ((5,), torch.int64), "c": ((0,), torch.float32)}
    )
    theirs = attach(buffers.fd, buffers.description)
    theirs["b"][4] = 7
    buffers.tensors["a"][2, 1] = 0.5
    assert buffers.tensors["b"].tolist() == [0, 0, 0, 0, 7]
    assert theirs["a"][2, 1] == 0.5
    assert theirs["c"].shape == (0,)
    with pytest.raises(PermissionError):
        os.ftruncate(buffers.fd, 0)
    buffers.close()
