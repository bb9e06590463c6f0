"""A cgroup (version 2) around a sandbox, where this user may make one: memory and processes.

Where not, the watchdog of each call looks at its process tree instead.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

_ROOT: Final = Path("/sys/fs/cgroup")
_NEEDED: Final = ("memory", "pids")
_END_SECONDS: Final = 2.0


@dataclass(frozen=True)
class Cgroup:
    """A cgroup of ours, by its folder."""

    folder: Path

    @classmethod
    def make(
        cls,
        memory_bytes: int,
        processes: int,
        *,
        root: Path = _ROOT,
        membership: Path = Path("/proc/self/cgroup"),
    ) -> Self | None:
        """A new one below our own; `None` where that cannot be."""
        try:
            own = _own(root, membership)
            if own is None:
                return None
            _hand_down(own)
            folder = own / f"tinyparallel-{secrets.token_hex(8)}"
            folder.mkdir()
        except OSError:
            return None
        made = cls(folder)
        try:
            (folder / "memory.max").write_text(str(memory_bytes))
            (folder / "pids.max").write_text(str(processes))
        except OSError:
            made.end()
            return None
        with contextlib.suppress(OSError):  # a kernel without swap accounting
            (folder / "memory.swap.max").write_text("0")
        return made

    def started(self, command: Sequence[str]) -> list[str]:
        """A command that is in the cgroup before it does anything."""
        script = 'echo $$ > "$0" && exec "$@"'
        return ["/bin/sh", "-c", script, str(self.folder / "cgroup.procs"), *command]

    def end(self) -> None:
        """Kill everything in it and remove it."""
        with contextlib.suppress(OSError):
            (self.folder / "cgroup.kill").write_text("1")
        deadline = time.monotonic() + _END_SECONDS
        while self.folder.exists() and time.monotonic() < deadline:
            try:
                self.folder.rmdir()
            except OSError:  # killed processes take a moment to go
                time.sleep(0.01)


def _own(root: Path, membership: Path) -> Path | None:
    """Our cgroup, when it has the controllers that we need and is ours to divide."""
    for line in membership.read_text().splitlines():
        if line.startswith("0::/"):
            own = root / line.removeprefix("0::/")
            there = (own / "cgroup.controllers").read_text().split()
            usable = set(_NEEDED) <= set(there) and os.access(own, os.W_OK)
            return own if usable else None
    return None


def _hand_down(own: Path) -> None:
    """Let cgroups below have the controllers; OSError where processes of ours stand in the way."""
    control = own / "cgroup.subtree_control"
    missing = set(_NEEDED) - set(control.read_text().split())
    if missing:
        control.write_text(" ".join(f"+{name}" for name in sorted(missing)))
