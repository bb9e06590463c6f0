"""Notebooks: made from their sources, executed from clean on the stubs, written back into them."""

from __future__ import annotations

import ast
import shutil
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest

from grader import tasks
from grader.cli import main
from grader.notebooks import NotebookError, build, execute, parse, spliced, tagged

from .answers import ROOT, answers_in, solution_lines

NOTEBOOKS = ROOT / "notebooks"
SOURCES = sorted((NOTEBOOKS / "src").glob("*.py"))
KEYS = [path.stem for path in SOURCES]
RING = next(task for task in tasks.TASKS if task.id == "a2.ring_all_reduce")


def made(key: str) -> Any:
    source = (NOTEBOOKS / "src" / f"{key}.py").read_text(encoding="utf-8")
    return build(key, source, ROOT / "assignments")


def kept(key: str) -> Any:
    return nbformat.read(NOTEBOOKS / f"{key}.ipynb", as_version=4)


def test_there_is_one_for_each_assignment() -> None:
    assert [assignment.key for assignment in tasks.COURSE] == KEYS
    assert sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb")) == KEYS


@pytest.mark.parametrize("key", KEYS)
def test_the_notebook_is_what_its_source_makes_and_has_its_outputs(key: str) -> None:
    notebook = kept(key)
    nbformat.validate(notebook)
    fresh = [(cell.cell_type, cell.source) for cell in made(key).cells]
    message = f"run: grader notebook build {key}"
    assert [(cell.cell_type, cell.source) for cell in notebook.cells] == fresh, message
    pictures = 0
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.execution_count is not None, message
            assert all(output.output_type != "error" for output in cell.outputs)
            pictures += sum("image/svg+xml" in output.get("data", {}) for output in cell.outputs)
    assert pictures >= 2
    text = nbformat.writes(notebook)
    assert str(ROOT) not in text and "/home/" not in text and "/tmp/" not in text


@pytest.mark.parametrize("key", KEYS)
def test_it_speaks_both_languages(key: str) -> None:
    for cell in kept(key).cells:
        if cell.cell_type == "markdown":
            assert any("\u4e00" <= letter <= "\u9fff" for letter in cell.source), cell.source
            assert any(letter.isascii() and letter.isalpha() for letter in cell.source)


@pytest.mark.parametrize("notebook_key", KEYS)  # not "key": those may run side by side
def test_it_runs_from_clean_on_the_stubs(notebook_key: str, tmp_path: Path) -> None:
    """In a project that holds nothing but the stubs, one kernel at a time."""
    key = notebook_key
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "assignments", tmp_path / "assignments", ignore=ignore)
    (tmp_path / "notebooks").mkdir()
    notebook = made(key)
    begin = time.monotonic()
    execute(notebook, tmp_path / "notebooks")
    print(f"{key}: {time.monotonic() - begin:.1f} s")
    codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert codes and all(cell.execution_count for cell in codes)


def test_a_cell_that_fails_is_told(tmp_path: Path) -> None:
    notebook = build("a1", "# %%\n1 / 0\n", ROOT / "assignments")
    with pytest.raises(NotebookError, match="ZeroDivisionError"):
        execute(notebook, tmp_path)


def test_no_notebook_holds_an_answer() -> None:
    lines = solution_lines()
    texts = [(f"{key}.py", (NOTEBOOKS / "src" / f"{key}.py").read_text()) for key in KEYS]
    for key in KEYS:
        for cell in kept(key).cells:
            texts.append((f"{key}.ipynb", cell.source))
    assert answers_in(iter(texts), lines) == []


def test_every_notebook_with_tasks_has_them_as_stubs() -> None:
    found = {task.id for key in KEYS for task, _ in tagged(kept(key))}
    assert {"a1.broadcast", "a2.ring_all_reduce", "a6.gpipe_schedule"} <= found


def test_a_source_must_begin_with_a_cell() -> None:
    with pytest.raises(NotebookError, match="line 1"):
        parse("x = 1\n# %%\n")


# export -----------------------------------------------------------------------------------------

WRITTEN = '''
from assignments.a2_ring_all_reduce.given import combine, place
import math

# `grader notebook export` writes this
def halves(tensor):
    return tensor.tensor_split(2)


def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None) -> None:
    """Short."""
    rank, size = place(group)
    for half in halves(tensor):
        combine(half, half, op)
'''


def stub() -> str:
    return (ROOT / "assignments" / RING.path).read_text(encoding="utf-8")


def test_export_replaces_the_task_and_nothing_else() -> None:
    before, after = stub(), spliced(stub(), RING, WRITTEN, RING.path)
    old = {getattr(n, "name", ""): ast.unparse(n) for n in ast.parse(before).body}
    new = {getattr(n, "name", ""): ast.unparse(n) for n in ast.parse(after).body}
    for name in old:
        if name and name != "ring_all_reduce":
            assert old[name] == new[name], name
    assert "halves" in new and "from .given import combine, place" in after
    assert "assignments" not in after.replace("assignments of", "")
    function = next(n for n in ast.parse(after).body if getattr(n, "name", "") == RING.attribute)
    assert isinstance(function, ast.FunctionDef)
    assert "Patarasuk" in (ast.get_docstring(function) or "")  # the stub's own docstring stays
    assert [ast.unparse(each) for each in function.decorator_list] == ["torch.no_grad()"]
    # Every line that does not belong to the task is where it was.
    assert (
        before.split("def ring_all_reduce")[0].splitlines()[:-1]
        == [line for line in after.splitlines() if line in before.split("def ring_all_reduce")[0]][
            : len(before.split("def ring_all_reduce")[0].splitlines()) - 1
        ]
    )


def test_export_twice_is_as_export_once() -> None:
    once = spliced(stub(), RING, WRITTEN, RING.path)
    assert spliced(once, RING, WRITTEN, RING.path) == once
    changed = spliced(once, RING, WRITTEN.replace("tensor_split(2)", "tensor_split(3)"), RING.path)
    assert changed.count("def halves") == 1 and "tensor_split(3)" in changed


def test_export_refuses_a_cell_without_the_task() -> None:
    with pytest.raises(NotebookError, match="ring_all_reduce"):
        spliced(stub(), RING, "def other():\n    pass\n", RING.path)
    with pytest.raises(NotebookError, match="line 1"):
        spliced(stub(), RING, "def ring_all_reduce(:\n", RING.path)


def test_the_command_writes_what_was_written_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "assignments", tmp_path / "assignments", ignore=ignore)
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path)
    notebook = kept("a2")
    target = tmp_path / "notebooks" / "a2.ipynb"
    target.write_text(nbformat.writes(notebook), encoding="utf-8")
    file = tmp_path / "assignments" / RING.path
    assert main(["notebook", "export", "a2"]) == 0
    assert "not written yet" in capsys.readouterr().out and file.read_text() == stub()

    cell = next(c for c in notebook.cells if RING.id in c.metadata.get("tags", ()))
    cell.source = cell.source.replace(
        'raise NotImplementedError("a2.ring_all_reduce")', "tensor *= 2"
    )
    target.write_text(nbformat.writes(notebook), encoding="utf-8")
    assert main(["notebook", "export", "a2"]) == 0
    assert file.read_text() == stub().replace(
        'raise NotImplementedError("a2.ring_all_reduce")', "tensor *= 2"
    )
    assert main(["notebook", "export", "a5"]) == 2
    assert "no notebook" in capsys.readouterr().err
