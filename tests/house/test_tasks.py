"""The table of tasks and how people name them."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader import tasks


@pytest.mark.parametrize(
    ("what", "first", "count"),
    [
        ("a1", "a1.rendezvous", 12),
        ("a1_collectives", "a1.rendezvous", 12),
        ("a1_collectives/", "a1.rendezvous", 12),
        ("a1.broadcast", "a1.broadcast", 1),
    ],
)
def test_names_of_tasks(what: str, first: str, count: int) -> None:
    selected = tasks.select([what])
    assert (selected[0].id, len(selected)) == (first, count)


def test_nothing_named_is_everything_and_order_is_the_tables() -> None:
    assert tasks.select([]) == list(tasks.TASKS)
    selected = tasks.select(["a1.barrier", "a1.rendezvous", "a1.barrier"])
    assert [task.id for task in selected] == ["a1.rendezvous", "a1.barrier"]


@pytest.mark.parametrize(
    ("what", "suggestion"),
    [
        ("a1.brodcast", "a1.broadcast"),
        ("broadcast", "a1.broadcast"),
        ("a1_colectives", "a1_collectives"),
        ("zzzzzz", "grader status"),
    ],
)
def test_unknown_name_suggests_the_nearest(what: str, suggestion: str) -> None:
    with pytest.raises(tasks.UnknownTask, match=suggestion) as caught:
        tasks.select([what])
    assert repr(what) in str(caught.value)


def test_table_is_sound() -> None:
    ids = [task.id for task in tasks.TASKS]
    assert len(set(ids)) == len(ids)
    for assignment in tasks.ASSIGNMENTS:
        assert assignment.name.startswith(assignment.key)
        for task in assignment.tasks:
            assert task.id == f"{assignment.key}.{task.attribute}"
            assert task.path.startswith(f"{assignment.name}/")
    assert tasks.COURSE[1].points == 100


def test_students_write_exactly_the_files_that_have_solutions_cut_out() -> None:
    reference = Path(__file__).resolve().parents[2] / "reference"
    cut = {
        str(file.relative_to(reference))
        for suffix in ("py", "cu")
        for file in reference.glob(f"a*/*.{suffix}")
        if "BEGIN SOLUTION" in file.read_text(encoding="utf-8")
    }
    files = tasks.student_files()
    assert set(files) == cut and len(files) == len(cut)
