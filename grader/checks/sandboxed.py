"""What a solution may see of this machine when it runs in a sandbox."""

from __future__ import annotations

import contextlib
from pathlib import Path

import kernels
from grader.checks.settings import CannotRun
from grader.harness.sandbox import Sandbox, unavailable
from kernels import native
from kernels.compilers import NoCompiler


def sandbox_for(folder: Path) -> Sandbox:
    """A sandbox that shows one solution and what it needs of the kit. Raises `CannotRun`."""
    reason = unavailable()
    if reason is not None:
        raise CannotRun(f"--sandbox: {reason}")
    visible = [Path(kernels.__file__).resolve().parent, folder.resolve()]
    # The checks that need it say what is missing.
    with contextlib.suppress(NoCompiler, native.NotBuilt):
        visible.append(native.folder())
    return Sandbox(visible=tuple(str(path) for path in visible))
