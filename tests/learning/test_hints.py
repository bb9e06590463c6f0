"""`grader hint`: three for every task, in two languages, one at a time, never the answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader import tasks
from grader.cli import main
from grader.hints import COUNT, all_hints, hints_of

from .answers import ROOT, SHORTEST, solution_lines, squeezed

TASKS = [task for assignment in tasks.COURSE for task in assignment.tasks]
FILES = sorted((ROOT / "grader" / "hints").glob("*.toml"))


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_a_task_has_three_hints_in_both_languages(task: tasks.Task) -> None:
    english, chinese = hints_of(task.id, "en"), hints_of(task.id, "zh")
    assert len(english) == len(chinese) == COUNT
    assert len({*english, *chinese}) == 2 * COUNT
    for hint in english:
        assert hint.isprintable() and 40 < len(hint) < 500, hint
    for hint in chinese:
        assert any("\u4e00" <= letter <= "\u9fff" for letter in hint), hint


def test_hints_are_of_tasks_of_the_course_only() -> None:
    assert len(FILES) == len(tasks.COURSE)
    known = {task.id for task in TASKS}
    for file in FILES:
        assert all_hints(file.stem).keys() <= known


def test_no_hint_holds_a_line_of_a_solution() -> None:
    lines = solution_lines()
    assert len(lines) > 1000
    hints = [hint for t in TASKS for language in ("en", "zh") for hint in hints_of(t.id, language)]
    for hint in hints:
        bare = squeezed(hint)
        found = [line for line in lines if line in bare]
        assert not found, (hint, found)
    # The search would find one.
    some = max(lines, key=len)
    assert len(some) > SHORTEST and some in squeezed(f"Hint: write {some}")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "assignments").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    return tmp_path


def test_each_call_shows_the_next_hint(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hints = hints_of("a2.ring_all_reduce")
    for number in range(COUNT):
        assert main(["hint", "a2.ring_all_reduce", "--lang", "en"]) == 0
        out = capsys.readouterr().out
        assert [hint in out for hint in hints] == [place == number for place in range(COUNT)]
        assert f"hint {number + 1} of 3" in out
    assert main(["hint", "a2.ring_all_reduce", "--lang", "en"]) == 0
    assert all(hint in capsys.readouterr().out for hint in [hints[-1]])
    # Another task begins with its first.
    main(["hint", "a2.ring_all_gather", "--lang", "zh"])
    assert hints_of("a2.ring_all_gather", "zh")[0] in capsys.readouterr().out


def test_again_repeats_and_reset_begins_anew(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hints = hints_of("a1.barrier")
    main(["hint", "a1.barrier", "--again", "--lang", "en"])
    out = capsys.readouterr().out
    assert "no hint of a1.barrier" in out and not any(hint in out for hint in hints)
    for _ in range(2):
        main(["hint", "a1.barrier", "--lang", "en"])
    capsys.readouterr()
    main(["hint", "a1.barrier", "--again", "--lang", "en"])
    out = capsys.readouterr().out
    assert hints[0] in out and hints[1] in out and hints[2] not in out
    main(["hint", "a1.barrier", "--reset", "--lang", "en"])
    out = capsys.readouterr().out
    assert hints[0] in out and hints[1] not in out


def test_an_unknown_task_is_refused_in_one_line(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["hint", "a1.boardcast"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "a1.broadcast" in err


@pytest.mark.parametrize("name", ["a1", "a1_collectives", "a1_collectives/"])
def test_an_assignment_is_no_task(
    project: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["hint", name, "--lang", "en"]) == 2
    assert "hint wants a task, for example a1.rendezvous\n" in capsys.readouterr().err
    assert main(["hint", name, "--lang", "zh"]) == 2
    assert "要写任务名，例如 a1.rendezvous" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "[]", '{"a1.barrier": "two"}', '{"a1.barrier": 99}'])
def test_a_damaged_memory_is_survived(
    project: Path, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / ".tinyparallel").mkdir()
    (project / ".tinyparallel" / "hints.json").write_text(content)
    assert main(["hint", "a1.barrier", "--lang", "en"]) == 0
    assert "hint" in capsys.readouterr().out
