"""The reference's schedules, by the tables of bubbles and activations."""

from __future__ import annotations

import pytest

from grader.checks import pipeline_judge as judge
from reference.a6_pipeline_parallel.schedule import schedule_text
from reference.a6_pipeline_parallel.schedules import bubble_ratio, interleaved_schedule
from reference.a6_pipeline_parallel.timeline import time_schedule, validate
from reference.a7_dualpipe.schedules import dualpipe_schedule, dualpipev_schedule

from .lineup import COSTS, LINEUP

RANKS = (1, 2, 4, 8, 16)
EPSILON = 1e-9


def bubble_limit(name: str, p: int, costs: judge.Costs) -> float:
    return judge.zero_bubble_bubble(p, costs) if name == "zb1p" else judge.fill_bubble(p, costs)


def peak_limits(name: str, p: int, m: int) -> list[int]:
    if name == "1f1b":
        return [min(p - rank, m) for rank in range(p)]
    return [min(p, m) if name == "zb1p" else m] * p


@pytest.mark.parametrize("costs", COSTS)
@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb1p"])
def test_one_way_schedules_keep_to_the_table(name: str, p: int, costs: tuple[float, ...]) -> None:
    entry = LINEUP[name]
    for m in sorted({*range(1, 2 * p + 2), 3 * p}):
        schedule = entry.make(p, m)
        validate(schedule, p, m, entry.placement(p, m))
        timeline = time_schedule(schedule, costs)
        if name == "zb1p" and m < p:
            one_f_one_b = time_schedule(LINEUP["1f1b"].make(p, m), costs)
            assert timeline.makespan <= one_f_one_b.makespan + EPSILON
        else:
            assert timeline.bubble <= bubble_limit(name, p, judge.Costs(*costs)) + EPSILON
        assert all(a <= b for a, b in zip(timeline.peaks, peak_limits(name, p, m), strict=True))


@pytest.mark.parametrize("p", RANKS)
def test_interleaved_keeps_to_the_table(p: int) -> None:
    for m in (p, 2 * p, 3 * p):
        for v in (1, 2, 3):
            schedule = interleaved_schedule(p, m, v)
            validate(schedule, v * p, m, LINEUP["interleaved"].placement(p, m))
            for costs in COSTS:
                timeline = time_schedule(schedule, costs)
                assert timeline.bubble <= judge.fill_bubble(p, judge.Costs(*costs)) + EPSILON
                limits = [(v - 1) * p + 2 * (p - 1 - rank) + 1 for rank in range(p)]
                assert all(a <= b for a, b in zip(timeline.peaks, limits, strict=True))


@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize("name", ["dualpipe", "dualpipev"])
def test_dualpipe_keeps_to_the_formula(name: str, p: int) -> None:
    entry = LINEUP[name]
    if name == "dualpipe" and p == 1:
        with pytest.raises(ValueError, match="ranks=1"):
            entry.make(1, 4)
        return
    stages = entry.stages(p)
    for m in (2 * p, 2 * p + 2, 3 * p + p % 2, 4 * p + 2):
        schedule = entry.make(p, m)
        validate(schedule, stages, m, entry.placement(p, m))
        for costs in COSTS:
            timeline = time_schedule(schedule, costs)
            both = m if name == "dualpipe" else 2 * m
            limit = judge.dualpipe_makespan(stages, both, judge.Costs(*costs))
            assert timeline.makespan <= limit + EPSILON
            assert max(timeline.peaks) <= stages + 1


def test_dualpipe_of_eight_ranks_and_twenty_micro_batches() -> None:
    timelines = [time_schedule(dualpipe_schedule(8, 20), costs) for costs in COSTS]
    assert [round(t.makespan, 9) for t in timelines] == [66, 59, 52, 63]
    assert timelines[0].bubbles == [6.0] * 8
    assert timelines[0].peaks == [9] * 8


@pytest.mark.parametrize("costs", COSTS)
def test_dualpipe_that_knows_the_costs_is_no_slower_and_no_larger(
    costs: tuple[float, ...],
) -> None:
    for p, m in ((2, 4), (4, 8), (8, 20)):
        schedule = dualpipe_schedule(p, m, costs)
        validate(schedule, p, m, LINEUP["dualpipe"].placement(p, m))
        timeline = time_schedule(schedule, costs)
        assert timeline.makespan <= time_schedule(dualpipe_schedule(p, m), costs).makespan
        assert max(timeline.peaks) <= p + 1


def test_dualpipe_that_knows_the_costs_can_be_faster() -> None:
    assert time_schedule(dualpipe_schedule(8, 20, COSTS[0]), COSTS[0]).makespan == 63


@pytest.mark.parametrize(
    ("ranks", "microbatches"), [(3, 12), (1, 2), (0, 2), (4, 9), (4, 6), (8, 14)]
)
def test_dualpipe_refuses(ranks: int, microbatches: int) -> None:
    with pytest.raises(ValueError, match=r"ranks=|microbatches="):
        dualpipe_schedule(ranks, microbatches)


def test_dualpipev_refuses_too_few_micro_batches() -> None:
    with pytest.raises(ValueError, match="microbatches=7"):
        dualpipev_schedule(4, 7)


def test_interleaved_refuses_a_remainder() -> None:
    with pytest.raises(ValueError, match=r"microbatches=6.*ranks=4"):
        interleaved_schedule(4, 6, 2)


@pytest.mark.parametrize("name", LINEUP)
def test_the_examiners_accounting_is_that_of_the_given_timeline(name: str) -> None:
    schedule = LINEUP[name].make(4, 8)
    plan = judge.read_plan(schedule_text(schedule).split("\n"), name)
    for costs in COSTS:
        timeline, measured = (
            time_schedule(schedule, costs),
            judge.measure(plan, judge.Costs(*costs)),
        )
        assert measured.makespan == pytest.approx(timeline.makespan)
        assert measured.bubbles == pytest.approx(timeline.bubbles)
        assert measured.peaks == timeline.peaks
        ratio = bubble_ratio(schedule, costs)
        assert ratio == pytest.approx(max(measured.bubbles) / measured.makespan)
