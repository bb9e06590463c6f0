"""`grader notebook export`: from a notebook's cells into the stubs; `build`: the notebooks."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated, Any

import typer

from grader.checks.settings import CannotRun, project_folder, solution_folder
from grader.commands.options import Solution
from grader.notebooks import NotebookError, build, execute, is_stub, spliced, tagged
from grader.report.files import write_atomically

app = typer.Typer(
    help="Write a notebook's cells into the stubs, or make the notebooks.",
    rich_markup_mode=None,
    no_args_is_help=True,
)

Which = Annotated[list[str] | None, typer.Argument(help="a2 or a path; default: all")]


@app.command()
def export(which: Which = None, solution: Solution = "assignments") -> int:
    """Write the cells that are tagged with a task into its file.

    Nothing else there changes.
    """
    nbformat: Any = importlib.import_module("nbformat")
    folder = solution_folder(solution)
    for path in _notebooks(which or []):
        try:
            notebook = nbformat.read(path, as_version=4)
        except Exception as error:  # what is no notebook fails in many ways
            raise CannotRun(f"{path} is no notebook: {error}") from None
        for task, cell in tagged(notebook):
            if is_stub(cell, task):
                print(f"{task.id}: not written yet in {path.name}")
                continue
            file = folder / task.path
            before = file.read_text(encoding="utf-8")
            try:
                after = spliced(before, task, cell, task.path)
            except NotebookError as error:
                raise CannotRun(f"{path.name}: {error}") from None
            if after != before:
                write_atomically(file, after)
            print(f"{task.id}: {'written to' if after != before else 'as it was in'} {file}")
    return 0


@app.command("build")
def make(which: Which = None) -> int:
    """Make notebooks from notebooks/src, and run them for their outputs."""
    nbformat: Any = importlib.import_module("nbformat")
    root = project_folder()
    sources = sorted((root / "notebooks" / "src").glob("a*.py"))
    chosen = [path for path in sources if not which or path.stem in which]
    if not chosen:
        raise CannotRun(f"no source of a notebook for {' '.join(which or [])} in notebooks/src")
    for path in chosen:
        try:
            source = path.read_text(encoding="utf-8")
            notebook = build(path.stem, source, root / "assignments")
            execute(notebook, root / "notebooks")
        except NotebookError as error:
            raise CannotRun(f"{path.name}: {error}") from None
        target = root / "notebooks" / f"{path.stem}.ipynb"
        write_atomically(target, nbformat.writes(notebook) + "\n")
        print(f"made {target}")
    return 0


def _notebooks(which: list[str]) -> list[Path]:
    folder = project_folder() / "notebooks"
    if not which:
        return sorted(folder.glob("a*.ipynb"))
    paths = [Path(name) if name.endswith(".ipynb") else folder / f"{name}.ipynb" for name in which]
    for path in paths:
        if not path.is_file():
            raise CannotRun(f"no notebook {path}")
    return paths
