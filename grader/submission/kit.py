"""Which kit grades: its version and a digest of all that has a say in a grade."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from grader import __version__

_KIT: Final = Path(__file__).resolve().parents[2]
_KINDS: Final = (".py", ".cu", ".h", ".cpp", ".txt")


def kit_name() -> str:
    """ "0.1.0+1f0c…": two kits of one name grade alike."""
    digest = hashlib.sha256()
    for folder in ("grader", "kernels", "assignments"):
        for path in sorted((_KIT / folder).rglob("*")):
            if path.suffix in _KINDS and path.is_file():
                digest.update(f"{path.relative_to(_KIT)}\0".encode() + path.read_bytes() + b"\0")
    return f"{__version__}+{digest.hexdigest()[:12]}"
