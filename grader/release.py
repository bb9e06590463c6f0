"""`assignments/` and the repository for students, made from `reference/`: nothing solved leaves.

Everything is computed before anything is written, so that wrong marks leave all as it was.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from grader import __version__, tasks
from grader.checks.settings import CannotRun
from grader.marks import NATIVE, PYTHON, MarkError, make_stub

# What a student's repository is made of, beside assignments/; what is missing is left out.
STUDENT_FILES = (
    ".devcontainer/devcontainer.json",
    ".dockerignore",
    ".gitignore",
    "Dockerfile",
    "LICENSE",
    "Makefile",
    "README.md",
    "README.zh-CN.md",
    "constraints.txt",
    "pyproject.toml",
)
STUDENT_FOLDERS = ("docs", "grader", "kernels", "notebooks")
# What only a student's repository has: a workflow that grades on push.
RELEASE_FILES = "grader/release_files"
VERSION_FILE = "VERSION"
_DEBRIS = {"__pycache__", "build", ".ipynb_checkpoints"}

Tree = dict[str, bytes]


def stubs(reference: Path, table: Sequence[tasks.Assignment] | None = None) -> Tree:
    """What `assignments/` must hold: relative path → contents.

    Takes the folders of the assignments in `table` (default: all that are switched on) and the
    files beside them. Raises `CannotRun` when a folder or a task's file is missing, a link is
    found, or marks are wrong.
    """
    table = tasks.ASSIGNMENTS if table is None else table
    if not reference.is_dir():
        raise CannotRun(f"no folder {reference}: assignments are made from it")
    all_tasks = [task for assignment in table for task in assignment.tasks]
    names = {assignment.name for assignment in table}
    tree: Tree = {}
    for path in _files(reference):
        name = path.relative_to(reference).as_posix()
        if "/" in name and name.split("/")[0] not in names:
            continue
        tree[name] = _stub(path, name, all_tasks)
    for task in all_tasks:
        if task.path not in tree:
            raise CannotRun(f"{reference / task.path} is missing: {task.id} should be in it")
        mark = f"TODO({task.id})" if task.is_kernel else f'NotImplementedError("{task.id}")'
        if mark not in tree[task.path].decode():
            raise CannotRun(f"{reference / task.path}: {task.id} has no marked solution")
    return tree


def differences(reference: Path, assignments: Path) -> list[str]:
    """How `assignments` differs from what `reference` would make: one line for each file."""
    wanted = stubs(reference)
    found = _read(assignments) if assignments.is_dir() else {}
    lines = []
    for name in sorted(wanted.keys() | found.keys()):
        if name not in found:
            lines.append(f"missing: {assignments.name}/{name}")
        elif name not in wanted:
            lines.append(f"not made from {reference.name}/: {assignments.name}/{name}")
        elif wanted[name] != found[name]:
            line = _first_difference(wanted[name], found[name])
            lines.append(f"differs: {assignments.name}/{name}:{line}")
    return lines


def write_assignments(reference: Path, assignments: Path) -> None:
    """Make `assignments` exactly what `reference` makes; files that are right stay untouched."""
    wanted = stubs(reference)
    assignments.mkdir(exist_ok=True)
    found = _read(assignments)
    for name in found.keys() - wanted.keys():
        (assignments / name).unlink()
        _remove_empty_parents(assignments / name, assignments)
    for name, content in wanted.items():
        if found.get(name) != content:
            target = assignments / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)


_KIT_ONLY = re.compile(rb"<!-- BEGIN KIT -->.*?<!-- END KIT -->\n*", re.DOTALL)


def _for_students(content: bytes) -> bytes:
    """Without what speaks of the kit's own repository: commands that a student does not have."""
    return _KIT_ONLY.sub(b"", content)


def write_release(root: Path, dest: Path) -> None:
    """Write a student's repository to `dest`, which must be new or empty, in one step.

    root: the kit. The stubs are made afresh, so that an edited `assignments/` cannot leak.
    Raises `CannotRun` when `dest` is in the way.
    """
    dest = dest.expanduser().absolute()
    if dest.is_symlink() or (dest.exists() and not dest.is_dir()):
        raise CannotRun(f"{dest} exists and is no folder")
    if dest.is_dir() and any(dest.iterdir()):
        raise CannotRun(f"{dest} is not empty: name a new folder")
    tree = {f"assignments/{name}": content for name, content in stubs(root / "reference").items()}
    for name in STUDENT_FILES:
        if (root / name).is_file():
            tree[name] = _for_students((root / name).read_bytes())
    for folder in STUDENT_FOLDERS:
        if (root / folder).is_dir():
            tree |= {f"{folder}/{name}": data for name, data in _read(root / folder).items()}
    extra = root / RELEASE_FILES
    for path in sorted(extra.rglob("*")):  # folders with a dot belong to it
        if path.is_file() and "__pycache__" not in path.parts:
            tree[path.relative_to(extra).as_posix()] = path.read_bytes()
    tree[VERSION_FILE] = f"tinyparallel {__version__}\ncommit {_commit(root)}\n".encode()
    dest.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=dest.parent, prefix=f".{dest.name}."))
    try:
        for name, content in tree.items():
            target = scratch / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            source = root / name
            if source.is_file() and source.stat().st_mode & stat.S_IXUSR:
                target.chmod(0o755)
        scratch.chmod(0o755)
        os.rename(scratch, dest)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def _stub(path: Path, name: str, all_tasks: Sequence[tasks.Task]) -> bytes:
    content = path.read_bytes()
    if path.suffix not in PYTHON | NATIVE:
        return content
    try:
        return make_stub(content.decode(), name, all_tasks).encode()
    except MarkError as error:
        raise CannotRun(f"{path.parents[name.count('/')].name}/{error}") from None


def _files(folder: Path) -> Iterator[Path]:
    """Files below `folder` in a fixed order, without what tools leave behind."""
    for path in sorted(folder.iterdir()):
        if path.name in _DEBRIS or path.suffix in (".pyc", ".egg-info"):
            continue
        if path.name.startswith(".") and path.is_dir():
            continue
        if path.is_symlink():
            raise CannotRun(f"{path} is a link: links are not released")
        if path.is_dir():
            yield from _files(path)
        else:
            yield path


def _read(folder: Path) -> Tree:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in _files(folder)}


def _first_difference(wanted: bytes, found: bytes) -> int:
    pairs = zip(wanted.splitlines(), found.splitlines(), strict=False)
    same = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    shorter = min(len(wanted.splitlines()), len(found.splitlines()))
    return (shorter if same is None else same) + 1


def _remove_empty_parents(path: Path, top: Path) -> None:
    for folder in path.parents:
        if folder == top or any(folder.iterdir()):
            return
        folder.rmdir()


def _commit(root: Path) -> str:
    """The kit's commit, marked when the checkout has changes; "unknown" outside git."""
    try:
        git = ["git", "-C", str(root)]
        top, sha = _output([*git, "rev-parse", "--show-toplevel", "HEAD"]).split()
        if Path(top).resolve() != root.resolve():
            return "unknown"
        changed = _output([*git, "status", "--porcelain"])
    except (OSError, ValueError, subprocess.CalledProcessError):
        return "unknown"
    return f"{sha} with local changes" if changed else sha


def _output(command: Sequence[str]) -> str:
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return run.stdout.strip()
