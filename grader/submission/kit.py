"""Which kit grades: its version and a digest of all that has a say in a grade."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from grader import __version__, tasks
from grader.checks.settings import CannotRun

KIT: Final = Path(__file__).resolve().parents[2]
"""The folder of the kit that grades, wherever the batch is started from."""
_KINDS: Final = (".py", ".cu", ".h", ".cpp", ".txt")


def require_untouched() -> None:
    """`assignments/`, which submissions are laid over, must be as it was handed out.

    Raises `CannotRun`: a file that somebody has solved there would earn its points for everyone
    who did not hand it in.
    """
    folder = KIT / "assignments"
    for task in tasks.TASKS:
        try:
            content = (folder / task.path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            content = ""
        if not _is_stub(task, content):
            raise CannotRun(
                f"batch: {folder / task.path} is not as it was handed out ({task.id}): "
                f"submissions are laid over it, and whoever left the file out would earn its points"
            )
    if (KIT / "reference").is_dir() and (changed := _changed(folder)):
        raise CannotRun(
            f"batch: assignments/ is not what reference/ makes ({changed}): submissions are laid "
            f"over it; run `make assignments`"
        )


def _is_stub(task: tasks.Task, content: str) -> bool:
    mark = f"TODO({task.id})" if task.is_kernel else f'NotImplementedError("{task.id}")'
    return mark in content


def _changed(folder: Path) -> str:
    from grader.release import differences

    return next(iter(differences(KIT / "reference", folder)), "")


def kit_name() -> str:
    """ "0.1.0+1f0c…": two kits of one name grade alike."""
    digest = hashlib.sha256()
    for folder in ("grader", "kernels", "assignments"):
        for path in sorted((KIT / folder).rglob("*")):
            if path.suffix in _KINDS and path.is_file():
                digest.update(f"{path.relative_to(KIT)}\0".encode() + path.read_bytes() + b"\0")
    return f"{__version__}+{digest.hexdigest()[:12]}"
