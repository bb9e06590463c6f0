"""Notebooks: made from plain sources, executed, and written back into the stubs.

A source (`notebooks/src/a2.py`) is Python in cells:

    # %% [markdown]
    # Text, one comment line for each line.
    # %%
    code
    # %% task=a2.ring_all_reduce
    (empty: the builder puts the stub's signature there)

A cell with a task carries the task's id as a tag. `export` writes what it defines into the file of
the stub and touches nothing else there.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from grader import tasks

_HEAD = re.compile(r"# %%(?: \[(markdown)\])?(?: task=([\w.]+))?")
#: Seconds that one cell may take.
CELL_SECONDS = 120


class NotebookError(ValueError):
    """A source, a notebook or a cell that cannot be used; the message says which and why."""


@dataclass
class Cell:
    """One cell of a source. task: whose stub it holds, or None."""

    kind: Literal["markdown", "code"]
    source: str
    task: str | None = None


def parse(source: str) -> list[Cell]:
    """The cells of a source. Raises `NotebookError` for text before the first head."""
    cells: list[Cell] = []
    lines: list[str] = []
    for number, line in enumerate(source.splitlines(), start=1):
        head = _HEAD.fullmatch(line)
        if head is None:
            if not cells:
                raise NotebookError(f"line {number}: expected `# %%`, found {line!r}")
            lines.append(line)
            continue
        if cells:
            cells[-1].source = _body(cells[-1].kind, lines)
        lines = []
        cells.append(Cell("markdown" if head[1] else "code", "", head[2]))
    if cells:
        cells[-1].source = _body(cells[-1].kind, lines)
    return cells


def _body(kind: str, lines: list[str]) -> str:
    if kind == "markdown":
        lines = [re.sub(r"^# ?", "", line) for line in lines]
    return "\n".join(lines).strip("\n")


def build(key: str, source: str, assignments: Path) -> Any:
    """The notebook of assignment `key` ("a2"), not yet executed. assignments: the stubs' folder."""
    v4: Any = importlib.import_module("nbformat.v4")
    cells = []
    for number, cell in enumerate(parse(source)):
        if cell.kind == "markdown":
            node = v4.new_markdown_cell(cell.source)
        else:
            node = v4.new_code_cell(_stub(cell.task, assignments) if cell.task else cell.source)
            if cell.task:
                node.metadata["tags"] = [cell.task]
        node["id"] = f"{key}-{number:02}"
        cells.append(node)
    metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return v4.new_notebook(cells=cells, metadata=metadata)


def _stub(task_id: str, assignments: Path) -> str:
    """The task as its stub has it, with the first line of its docstring."""
    task = next((t for each in tasks.COURSE for t in each.tasks if t.id == task_id), None)
    if task is None:
        raise NotebookError(f"no task {task_id}")
    path = assignments / task.path
    source = path.read_text(encoding="utf-8")
    node = _definition(source, task.attribute, str(path))
    if not isinstance(node, ast.FunctionDef):
        raise NotebookError(f"{task_id} is no function: its cell cannot be made")
    lines = source.splitlines()
    first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
    signature = lines[first - 1 : node.body[0].lineno - 1]
    summary = (ast.get_docstring(node) or task.title).splitlines()[0]
    return "\n".join(
        [
            f"# `grader notebook export` writes this into {assignments.name}/{task.path}",
            *signature,
            f'    """{summary}"""',
            f'    raise NotImplementedError("{task_id}")',
        ]
    )


def execute(notebook: Any, folder: Path) -> None:
    """Run all cells in a kernel that starts in `folder`; outputs go into the notebook.

    Raises `NotebookError` with the cell's traceback when one fails.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
    )
    try:
        client.execute()
    except CellExecutionError as error:
        raise NotebookError(str(error)) from None
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    notebook.metadata["language_info"] = {"name": "python"}


def tagged(notebook: Any) -> Iterator[tuple[tasks.Task, str]]:
    """The cells that carry a task's id as a tag, with the task."""
    known = {task.id: task for each in tasks.COURSE for task in each.tasks}
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        for tag in cell.metadata.get("tags", ()):
            if tag in known:
                yield known[tag], str(cell.source)


def is_stub(source: str, task: tasks.Task) -> bool:
    """Whether a cell's code is still what the notebook came with."""
    return f'NotImplementedError("{task.id}")' in source


def spliced(stub: str, task: tasks.Task, cell: str, path: str) -> str:
    """The text of the stub's file with the task's definition replaced by that of the cell.

    The file's docstring and decorators stay where the cell has its own shorter ones or none. What
    the cell defines beside the task goes in front of it, or replaces what has the same name.
    Raises `NotebookError`.
    """
    where = f"the cell of {task.id}"
    tree = _parsed(cell, where)
    own = _definition(cell, task.attribute, where)
    helpers = [node for node in tree.body if node is not own and not _is_same(node, own)]
    text = _replaced(stub, task.attribute, _code(cell, own), path, keep=True)
    before: list[str] = []
    for helper in helpers:
        code = _relative(_code(cell, helper), task)
        name = getattr(helper, "name", None)
        if name is not None and _find(text, name) is not None:
            text = _replaced(text, name, code, path, keep=False)
        elif code not in text:
            before.append(code)
    if before:
        node = _definition(text, task.attribute, path)
        lines = text.splitlines()
        lines[_first_line(node) - 1 : _first_line(node) - 1] = _apart(before)
        text = "\n".join(lines) + "\n"
    _parsed(text, path)
    return text


def _apart(blocks: list[str]) -> list[str]:
    lines: list[str] = []
    for block in blocks:
        gap = 0 if block.startswith(("import ", "from ")) else 2
        lines += [*block.splitlines(), *[""] * gap]
    return lines if lines[-1] == "" else [*lines, "", ""]


def _is_same(a: ast.stmt, b: ast.stmt) -> bool:
    return (a.lineno, a.col_offset) == (b.lineno, b.col_offset)


def _relative(code: str, task: tasks.Task) -> str:
    """Imports as they must be inside the solution's folder."""
    own = rf"\bfrom assignments\.{task.assignment}"
    code = re.sub(rf"{own} import\b", "from . import", code)
    code = re.sub(rf"{own}\.", "from .", code)
    return re.sub(r"\bfrom assignments\.", "from ..", code)


def _replaced(text: str, name: str, code: str, path: str, *, keep: bool) -> str:
    """`text` with the definition of `name` replaced; keep: its docstring and decorators stay."""
    old = _definition(text, name, path)
    lines = text.splitlines()
    if keep and isinstance(old, (ast.FunctionDef, ast.ClassDef)):
        code = _with_head(code, name, lines, old)
    lines[_first_line(old) - 1 : old.end_lineno] = code.splitlines()
    return "\n".join(lines) + "\n"


def _with_head(code: str, name: str, lines: list[str], old: ast.FunctionDef | ast.ClassDef) -> str:
    """The new definition with the old one's docstring and, where it has none, decorators."""
    new = _definition(code, name, "the cell")
    assert isinstance(new, (ast.FunctionDef, ast.ClassDef))
    fresh = code.splitlines()
    if ast.get_docstring(old) is not None:
        document = old.body[0]
        kept = lines[document.lineno - 1 : document.end_lineno]
        if ast.get_docstring(new) is not None:
            own = new.body[0]
            fresh[own.lineno - 1 : own.end_lineno] = kept
        elif new.body[0].lineno > new.lineno:
            fresh[new.body[0].lineno - 1 : new.body[0].lineno - 1] = kept
    if not new.decorator_list and old.decorator_list:
        fresh = lines[_first_line(old) - 1 : old.lineno - 1] + fresh
    return "\n".join(fresh)


def _code(source: str, node: ast.stmt) -> str:
    return "\n".join(source.splitlines()[_first_line(node) - 1 : node.end_lineno])


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def _parsed(source: str, where: str) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError as error:
        raise NotebookError(f"{where}, line {error.lineno}: {error.msg}") from None


def _find(source: str, name: str) -> ast.stmt | None:
    for node in ast.parse(source).body:
        if getattr(node, "name", None) == name:
            return node
    return None


def _definition(source: str, name: str, where: str) -> ast.stmt:
    for node in _parsed(source, where).body:
        if getattr(node, "name", None) == name:
            return node
    raise NotebookError(f"{where} defines no {name}")
