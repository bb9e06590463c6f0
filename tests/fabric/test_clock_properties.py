"""What must hold of the replay of any record."""

from __future__ import annotations

import math
import random
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from grader.fabric.clock import replay
from grader.fabric.clock_timeline import Timeline
from grader.fabric.cluster import Cluster, LinkSpec, two_level, uniform
from grader.fabric.record import Record
from grader.fabric.record_io import record_from_columns, record_to_columns
from grader.fabric.trace import Trace
from tests.fabric.played_records import Script, renumbered

KINDS = ["all_reduce", "all_gather", "all_to_all", "reduce_scatter", "barrier"]


class Step(NamedTuple):
    """One step of a generated program: everybody's share in it."""

    flops: list[int]
    messages: list[tuple[int, int, int]]  # src, dst, nbytes
    collective: str | None
    lag: int  # how many steps later the ranks wait for it


@st.composite
def steps(draw: st.DrawFn, ranks: int) -> list[Step]:
    rank = st.integers(0, ranks - 1)
    message = st.tuples(rank, rank, st.sampled_from([0, 1, 1_000, 123_457, 10_000_000]))
    flops = st.lists(st.sampled_from([0, 10**8, 7 * 10**9]), min_size=ranks, max_size=ranks)
    kind = st.one_of(st.none(), st.sampled_from(KINDS))
    step = st.builds(Step, flops, st.lists(message, max_size=6), kind, st.integers(0, 2))
    return draw(st.lists(step, min_size=1, max_size=5))


def write(program: list[Step], ranks: int, whole: bool = True) -> Record:
    """The record of a program. Not `whole`: rank 0 dies in the middle of it."""
    s = Script(ranks)
    for rank in range(ranks):
        due: list[tuple[int, list[int]]] = []
        for number, step in enumerate(program):
            if rank == 0 and not whole and number == len(program) // 2:
                break
            s.compute(rank, flops=step.flops[rank])
            ops = []
            for src, dst, nbytes in step.messages:
                if src == rank:
                    ops.append(s.send(rank, dst, nbytes))
                if dst == rank:
                    ops.append(s.recv(rank, src, -1))
            if step.collective:
                ops.append(s.collective(rank, step.collective, 60_000))
            due.append((number + step.lag, ops))
            for when, waited in due:
                if when == number:
                    s.wait(rank, *waited)
        for when, waited in due:
            if when >= len(program) and (whole or rank):
                s.wait(rank, *waited)
    return s.done()


def clusters(ranks: int) -> st.SearchStrategy[Cluster]:
    half = (ranks + 1) // 2
    fast, slow = LinkSpec(2e-6, 100e9), LinkSpec(7e-6, 20e9)
    return st.sampled_from(
        [
            uniform(ranks, 5e-6, 50e9),
            uniform(ranks, 0, 50e9, flops=math.inf),
            two_level(2, half, fast, slow),
            two_level(2, half, slow, fast, nics_per_node=1),
            Cluster("slots", half, 2, fast, slow, shared_port=True),
        ]
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Step], int, Cluster]:
    ranks = draw(st.integers(1, 5))
    return draw(steps(ranks)), ranks, draw(clusters(ranks))


Case = tuple[list[Step], int, Cluster]
few = settings(max_examples=120, deadline=None, derandomize=True)


def times(timeline: Timeline, order: list[int]) -> list[tuple[float, float, float]]:
    """Posted, begin, end of every operation, in the order of numbers before renumbering."""
    columns = (timeline.posted, timeline.begin, timeline.end)
    values = [tuple(column[i] for column in columns) for i in order]
    return [tuple(-1.0 if math.isnan(x) else x for x in row) for row in values]  # type: ignore[misc]


@few
@given(cases())
def test_no_link_beats_its_rate(case: Case) -> None:
    program, ranks, cluster = case
    record = write([step._replace(collective=None) for step in program], ranks)
    timeline = replay(record, cluster)
    carried = [0] * len(cluster.link_bandwidths)
    first = [math.inf] * len(carried)
    last = [0.0] * len(carried)
    for op in record.operations:
        if op.kind == "send":
            for link in cluster.path(op.rank, op.peer).links:
                carried[link] += op.nbytes
                first[link] = min(first[link], timeline.begin[op.id])
                last[link] = max(last[link], timeline.end[op.id])
    for link, bandwidth in enumerate(cluster.link_bandwidths):
        seconds = carried[link] / bandwidth
        assert math.isclose(timeline.link_busy[link], seconds, abs_tol=1e-15)
        if carried[link]:
            assert seconds <= (last[link] - first[link]) * (1 + 1e-12)


@few
@given(cases())
def test_nothing_happens_before_its_cause(case: Case) -> None:
    program, ranks, cluster = case
    record = write(program, ranks)
    timeline = replay(record, cluster)
    assert timeline.complete
    by_match: dict[int, list[int]] = {}
    for op in record.operations:
        by_match.setdefault(op.match, []).append(op.id)
    for ids in by_match.values():
        ready = max(timeline.posted[i] for i in ids)
        op = record.operations[ids[0]]
        for i in ids:
            assert ready <= timeline.begin[i] <= timeline.end[i] <= timeline.makespan
            assert (timeline.begin[i], timeline.end[i]) == (
                timeline.begin[ids[0]],
                timeline.end[ids[0]],
            )
        if op.kind in ("send", "recv"):
            src, dst = (op.rank, op.peer) if op.kind == "send" else (op.peer, op.rank)
            links, latency = cluster.path(src, dst)
            slowest = min((cluster.link_bandwidths[link] for link in links), default=math.inf)
            least = latency + op.nbytes / slowest
            assert timeline.end[ids[0]] - ready >= least * (1 - 1e-9)
    for rank in range(ranks):
        clock = 0.0
        for segment in timeline.segments(rank):
            assert clock <= segment.begin < segment.end
            clock = segment.end
            if segment.kind == "wait":
                assert segment.end == timeline.end[segment.operation]
        assert clock <= timeline.finish[rank] <= timeline.makespan


@few
@given(cases())
def test_bytes_are_conserved(case: Case) -> None:
    program, ranks, _ = case
    record = write(program, ranks)
    trace = Trace(record)
    assert trace.complete
    sent = sum(nbytes for step in program for _, _, nbytes in step.messages)
    assert sum(trace.traffic.values()) == sent
    assert sum(trace.bytes_sent) == sum(trace.bytes_received)
    assert sum(trace.messages_sent) == sum(trace.messages_received)


@few
@given(cases(), st.randoms(use_true_random=False))
def test_host_order_and_numbers_do_not_matter(case: Case, rng: random.Random) -> None:
    program, ranks, cluster = case
    record = write(program, ranks)
    order = list(range(len(record.operations)))
    rng.shuffle(order)
    other = renumbered(record, order)
    a, b = replay(record, cluster), replay(other, cluster)
    assert times(a, list(range(len(order)))) == times(b, order)
    assert (a.makespan, a.finish, a.link_busy) == (b.makespan, b.finish, b.link_busy)
    assert Trace(record).rounds == Trace(other).rounds


@few
@given(cases())
def test_latency_never_shortens_a_run_without_contention(case: Case) -> None:
    """One message per sender and receiver and step, all waited for before the next step."""
    program, ranks, _ = case
    calm = []
    for step in program:
        used: set[tuple[str, int]] = set()
        messages = []
        for src, dst, nbytes in step.messages:
            if ("out", src) not in used and ("in", dst) not in used and not used & {("any", src)}:
                used |= {("out", src), ("in", dst)}
                messages.append((src, dst, nbytes))
        calm.append(Step(step.flops, messages, "barrier", 0))
    record = write(calm, ranks)
    spans = [
        replay(record, uniform(ranks, alpha, 50e9)).makespan for alpha in (0, 1e-6, 5e-6, 1e-3)
    ]
    assert spans == sorted(spans)


@few
@given(cases())
def test_shares_of_time_fit_into_the_run(case: Case) -> None:
    program, ranks, cluster = case
    timeline = replay(write(program, ranks), cluster)
    for rank in range(ranks):
        computing, talking = timeline.computing(rank), timeline.communicating(rank)
        overlap = timeline.overlap(rank)
        slack = 1e-12
        assert -slack <= overlap <= min(computing, talking) + slack
        assert computing + talking - overlap <= timeline.makespan + slack
        assert math.isclose(
            computing + timeline.blocked(rank), timeline.finish[rank], abs_tol=slack
        )
        assert timeline.idle(rank) >= timeline.blocked(rank) - slack


@few
@given(cases())
def test_cut_off_runs_end_and_agree_with_the_whole_as_far_as_they_go(case: Case) -> None:
    program, ranks, _ = case
    record = write(program, ranks, whole=False)
    timeline = replay(record, uniform(ranks, 5e-6, 50e9))
    unmatched = [op.id for op in record.operations if op.match < 0]
    assert timeline.complete == (not unmatched)
    assert all(math.isnan(timeline.end[i]) for i in unmatched)
    assert timeline.complete == Trace(record).complete
    for rank, op in timeline.stuck.items():
        assert record.operations[op].rank == rank
        assert math.isnan(timeline.end[op])


@few
@given(cases())
def test_columns_carry_the_whole_record(case: Case) -> None:
    program, ranks, _ = case
    for whole in (True, False):
        record = write(program, ranks, whole)
        assert record_from_columns(record_to_columns(record)) == record
