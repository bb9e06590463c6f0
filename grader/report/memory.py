"""Small files that the grader keeps for a student in `.tinyparallel/`, beside the last results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from grader.report.files import dump, write_atomically

FOLDER = ".tinyparallel"


def read(project: Path, name: str) -> dict[str, Any]:
    """The document; empty when it is missing or unreadable, since nothing depends on it."""
    try:
        document = json.loads((project / FOLDER / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def write(project: Path, name: str, document: dict[str, Any]) -> None:
    """Replace the document; git is told to ignore the folder. Raises OSError."""
    path = project / FOLDER / name
    path.parent.mkdir(exist_ok=True)
    ignore = path.with_name(".gitignore")
    if not ignore.exists():
        write_atomically(ignore, "*\n")
    write_atomically(path, dump(document))
