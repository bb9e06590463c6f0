"""The repository for students: no line of a solution anywhere, and what it needs to work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from grader.release import write_release

from .answers import ROOT, answers_in, passages_in, solution_lines

#: What tools leave, and pictures.
_BINARY = (".png", ".pyc", ".so")


@pytest.fixture(scope="module")
def student(tmp_path_factory: pytest.TempPathFactory) -> Path:
    dest = tmp_path_factory.mktemp("release") / "student"
    write_release(ROOT, dest)
    return dest


def texts(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix not in _BINARY:
            yield path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8")


def test_no_line_of_a_solution_is_in_the_release(student: Path) -> None:
    lines = solution_lines()
    assert len(lines) > 1000
    # The kit's code may share a line with a solution, where students' files and texts may not.
    theirs = [(n, t) for n, t in texts(student) if not n.startswith(("grader/", "kernels/"))]
    theirs += [(n, t) for n, t in texts(student) if n.startswith("grader/hints/")]
    assert len(theirs) > 80
    found = answers_in(iter(theirs), lines)
    found += passages_in(texts(student), lines)
    assert found == [], "\n".join(found)


def test_the_search_finds_an_answer_that_was_left(tmp_path: Path) -> None:
    lines = solution_lines()
    answer = max(lines, key=len)
    (tmp_path / "leak.py").write_text(f"def f():\n    {answer}\n")
    assert answers_in(texts(tmp_path), lines) == [f"leak.py:2: {answer}"]
    assert passages_in(texts(tmp_path), lines) == []
    (tmp_path / "leak.py").write_text(f"def f():\n    {answer}\n\n        {answer}\n")
    assert len(passages_in(texts(tmp_path), lines)) == 1


def test_no_mark_and_no_solved_folder_is_in_the_release(student: Path) -> None:
    assert not (student / "reference").exists() and not (student / "tests").exists()
    for name, text in texts(student):
        if name.startswith(("assignments/", "notebooks/")):
            assert "BEGIN SOLUTION" not in text, name
