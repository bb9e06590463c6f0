"""git as a subprocess that does nothing but what is asked: no hook, no prompt, no settings."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from grader.harness import processes

_LOOK_SECONDS: Final = 0.05
_MAX_OUTPUT: Final = 64 << 20
_MAX_MEMORY: Final = 4 << 30
_SETTINGS: Final = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.bigFileThreshold=1m",
    # Nothing is checked out: an odd .gitmodules or mode harms nobody, and is no reason to refuse.
    "fetch.fsckObjects=false",
    "transfer.fsckObjects=false",
    "fetch.recurseSubmodules=false",
    "fetch.writeCommitGraph=false",
    "transfer.bundleURI=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "http.followRedirects=false",
    "http.lowSpeedLimit=1000",
    "http.lowSpeedTime=30",
    "credential.helper=",
    "protocol.allow=never",
)


class GitError(RuntimeError):
    """git did not do it; the message is its last words, or which limit was met."""


class GitLimit(GitError):
    """A limit of ours was met: nothing is known of what was asked for."""


@dataclass(frozen=True)
class GitLimits:
    """Of one command: wall time, and what its repository may grow to."""

    seconds: float = 120.0
    nbytes: int = 256 << 20


def environment(protocol: str) -> dict[str, str]:
    """All that git gets to see. protocol: the one transport it may use."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.devnull,
        "XDG_CONFIG_HOME": os.devnull,
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "true",
        "SSH_ASKPASS": "true",
        "GIT_SSH_COMMAND": "false",
        "GIT_ALLOW_PROTOCOL": protocol,
        "GIT_PROTOCOL_FROM_USER": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_OPTIONAL_LOCKS": "0",
    }


def run_git(
    folder: Path, *arguments: str, protocol: str = "https", limits: GitLimits | None = None
) -> bytes:
    """What git prints. Nothing of the command is left running. Raises `GitError`."""
    limits = limits or GitLimits()
    options = [part for setting in _SETTINGS for part in ("-c", setting)]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            ["git", *options, "-c", f"protocol.{protocol}.allow=always", *arguments],
            cwd=folder,
            env=environment(protocol),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                resource.prlimit(process.pid, resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))
            _watch(process, folder, limits, out.fileno())
        finally:
            # Transports and index-pack are of its session: none may go on when it has ended.
            processes.kill_tree(process.pid)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        err.seek(0)
        out.seek(0)
        if process.returncode != 0:
            lines = err.read(1 << 16).decode("utf-8", errors="replace").strip().splitlines()
            raise GitError("\n".join(lines) if lines else f"git ended with {process.returncode}")
        return out.read()


def _watch(process: subprocess.Popen[bytes], folder: Path, limits: GitLimits, output: int) -> None:
    deadline = time.monotonic() + limits.seconds
    patience = 0.002
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
            return
        patience = min(2 * patience, _LOOK_SECONDS)
        if time.monotonic() > deadline:
            raise GitLimit(f"not fetched within {limits.seconds:g} seconds")
        if os.fstat(output).st_size > _MAX_OUTPUT:
            raise GitLimit("git prints without end")
        check_size(folder, limits)


def check_size(folder: Path, limits: GitLimits) -> None:
    """Raise `GitLimit` when the folder holds more than it may."""
    used = 0
    for place, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                used += os.lstat(os.path.join(place, name)).st_size
    if used > limits.nbytes:
        raise GitLimit(
            f"the repository is larger than the limit of {limits.nbytes >> 20} MiB: is there a "
            "data set or a build in it?"
        )
