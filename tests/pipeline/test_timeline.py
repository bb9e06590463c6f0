"""The given timeline: what it refuses, what it counts, what it draws."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from grader.checks.framework import CheckFailed
from grader.checks.pipeline_judge import check_valid, read_plan
from grader.checks.pipeline_plans import in_line
from reference.a6_pipeline_parallel.picture import COLOURS, to_svg, to_terminal
from reference.a6_pipeline_parallel.schedule import Action, parse_schedule, schedule_text
from reference.a6_pipeline_parallel.timeline import Costs, ScheduleError, time_schedule, validate

from .lineup import LINEUP

GOOD = "F0.0 F0.1 B0.0 B0.1\nF1.0 B1.0 F1.1 I1.1 W1.1"

# fault -> (schedule of two stages and two micro-batches, what both messages must name)
FAULTY = {
    "action": ("F0.0 F0.1 B0.0 B0.1 F0.2\nF1.0 B1.0 F1.1 B1.1", "rank 0, step 4"),
    "pair": ("F0.0 F0.1 B0.0 B0.1\nF1.0+B1.0 F1.1 B1.1", "rank 1, step 0"),
    "placement": ("F0.0 F0.1 B0.0 B0.1 F1.0 B1.0\nF1.1 B1.1", "rank 0, step 4"),
    "twice": ("F0.0 F0.1 B0.0 B0.1\nF1.0 B1.0 F1.1 F1.0 B1.1", "rank 1, step 3"),
    "missing": ("F0.0 F0.1 B0.0 B0.1\nF1.0 I1.0 F1.1 B1.1", "stage 1 of micro-batch 0"),
    "order": ("F0.0 F0.1 B0.0 B0.1\nB1.0 F1.0 F1.1 B1.1", "rank 1, step 0"),
    "deadlock": ("F0.0 B0.0 F0.1 B0.1\nF1.0 F1.1 B1.0 B1.1", "deadlock: rank 0, step 1"),
}


def test_a_good_schedule_passes() -> None:
    validate(parse_schedule(GOOD), 2, 2, in_line)


@pytest.mark.parametrize("fault", FAULTY)
def test_a_fault_is_named_with_rank_and_step(fault: str) -> None:
    text, names = FAULTY[fault]
    with pytest.raises(ScheduleError, match=names) as raised:
        validate(parse_schedule(text), 2, 2, in_line)
    assert raised.value.fault == fault
    with pytest.raises(CheckFailed, match=names):
        check_valid(read_plan(text.split("\n"), "x"), 2, 2, 2, in_line)


@pytest.mark.parametrize(
    "text",
    [
        "F0.0 F0.1 B0.0 B0.1\nF1.0 B1.0 F1.1",
        "F0.0 B0.0\nF1.0 B1.0",
        "F0.0 F0.1 B0.0 B0.1 W0.1\nF1.0 B1.0 F1.1 B1.1",
        "F0.0 F0.1 B0.0 B0.1 I0.1\nF1.0 B1.0 F1.1 B1.1",
    ],
)
def test_every_chunk_needs_one_forward_and_one_backward(text: str) -> None:
    with pytest.raises(ScheduleError):
        validate(parse_schedule(text), 2, 2)
    with pytest.raises(CheckFailed):
        check_valid(read_plan(text.split("\n"), "x"), 2, 2, 2, in_line)


def test_a_deadlock_names_its_cycle() -> None:
    with pytest.raises(ScheduleError) as raised:
        time_schedule(parse_schedule(FAULTY["deadlock"][0]))
    assert str(raised.value) == (
        "deadlock: rank 0, step 1 (B0.0) waits for I1.0, which is step 2 of rank 1; "
        "rank 1, step 1 (F1.1) waits for F0.1, which is step 2 of rank 0"
    )


def test_times_bubbles_and_peaks_of_a_small_schedule() -> None:
    timeline = time_schedule(parse_schedule(GOOD), (1, 2, 3, 5))
    assert timeline.begin == [[0, 1, 7, 12], [1, 2, 7, 8, 10]]
    assert timeline.makespan == 17
    assert timeline.busy == [12, 12]
    assert timeline.bubble == 5
    assert timeline.peaks == [2, 1]


def test_a_pair_starts_with_both_inputs_and_ends_with_both_results() -> None:
    text = "F0.0 F0.1 B0.0 B0.1\nF1.0 F1.1+B1.0 B1.1"
    timeline = time_schedule(parse_schedule(text), (1, 1, 1, 2.5))
    assert timeline.begin[1] == [1, 2, 4.5]
    assert timeline.begin[0][2] == 4.5
    assert timeline.peaks[1] == 2


def test_a_pair_with_an_input_gradient_saves_as_much_as_one_with_a_whole_backward() -> None:
    costs = Costs(1, 1.2, 0.8, 2.7)
    (pair,), (whole,) = parse_schedule("F0.1+I1.0")[0:1], parse_schedule("F0.1+B1.0")[0:1]
    saved = costs.F + costs.B - costs.of(whole[0])
    assert costs.F + costs.I - costs.of(pair[0]) == pytest.approx(saved)


def test_text_is_read_back() -> None:
    for entry in LINEUP.values():
        schedule = entry.make(4, 8)
        assert parse_schedule(schedule_text(schedule)) == schedule


def test_what_is_no_step_is_named() -> None:
    with pytest.raises(ValueError, match=r"line 2, step 1: 'X0\.0'"):
        parse_schedule("F0.0\nX0.0")


@pytest.mark.parametrize("name", LINEUP)
def test_pictures_show_every_step(name: str) -> None:
    timeline = time_schedule(LINEUP[name].make(4, 8))
    svg = ElementTree.fromstring(to_svg(timeline, "a & b"))
    titles = [node.text for node in svg.iter("{http://www.w3.org/2000/svg}title")]
    steps = [step for steps in timeline.schedule for step in steps]
    assert [str(title).split(":")[0] for title in titles] == [str(step) for step in steps]
    lines = to_terminal(timeline).split("\n")[1:]
    assert [line.split()[:2] for line in lines] == [["rank", str(r)] for r in range(4)]
    for line, row in zip(lines, timeline.schedule, strict=True):
        assert line.count("F") == sum("F" in str(step) for step in row)


def test_colours_are_those_of_the_kinds() -> None:
    svg = to_svg(time_schedule([[Action("F", 0, 0), Action("I", 0, 0), Action("W", 0, 0)]]))
    assert all(COLOURS[kind] in svg for kind in "FIW")
    assert COLOURS["B"] not in svg
