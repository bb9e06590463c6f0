"""Whether students' processes can be confined here, and how an examiner is told to do it."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType


def _sandbox() -> ModuleType | None:
    name = "grader.submission.sandbox"
    return importlib.import_module(name) if importlib.util.find_spec(name) else None


def missing() -> str | None:
    """Why nothing can be confined here; None when it can."""
    sandbox = _sandbox()
    if sandbox is None:
        return "this kit has no sandbox"
    reason: str | None = sandbox.available()
    return reason


def options() -> list[str]:
    """Options of `grader check`: the sandbox, and V points confirmed where messages pass us."""
    sandbox = _sandbox()
    brokered = bool(getattr(sandbox, "BROKERED", False))
    return ["--sandbox", *["--brokered"] * brokered]
