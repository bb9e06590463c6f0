"""What a run of the checks is told: which solution, which device, which tasks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import grader
from grader import tasks

Device = Literal["cpu", "cuda"]


class CannotRun(Exception):
    """The run cannot be carried out as asked; the message is one line for the user."""


@dataclass(frozen=True)
class Settings:
    """Read by fixtures through `request.config.stash[plugin.SETTINGS]` or the `settings` fixture.

    solution: as the user named it ("assignments", "reference" or a path); folder: where it lies.
    sandbox: the solution's processes run in a sandbox; brokered: its volume is confirmed in a world
    whose every message passes through this process.
    selected: ids of the tasks to grade, None for all that are collected.
    """

    solution: str
    folder: Path
    device: Device = "cpu"
    seed: int = 0
    throughput: bool = True
    in_process: bool = False
    debug: bool = False
    sandbox: bool = False
    brokered: bool = False
    language: str = "en"
    selected: tuple[str, ...] | None = None


def project_folder(start: Path | None = None) -> Path:
    """The nearest folder, from `start` (default: here) upwards, that holds `assignments/`.

    Else the one that holds the kit itself.
    """
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        if (folder / "assignments").is_dir():
            return folder
    return Path(grader.__file__).resolve().parents[1]


def solution_folder(name: str) -> Path:
    """The folder of a solution: "assignments" or "reference" of the project, or any path.

    Raises `CannotRun` when it is missing or holds none of the assignments.
    """
    named = name in ("assignments", "reference")
    folder = project_folder() / name if named else Path(name).expanduser().resolve()
    if not folder.is_dir():
        raise CannotRun(f"no such solution folder: {folder}")
    if not any((folder / each.name).is_dir() for each in tasks.ASSIGNMENTS):
        expected = ", ".join(each.name for each in tasks.ASSIGNMENTS)
        raise CannotRun(f"{folder} holds no assignment (expected a folder named {expected})")
    return folder


def resolve_device(name: str) -> Device:
    """ "auto" is CUDA where there is a GPU. Raises `CannotRun` for CUDA where there is none."""
    if name == "cpu":
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if name == "cuda":
        raise CannotRun("--device cuda: torch finds no CUDA device here")
    return "cpu"
