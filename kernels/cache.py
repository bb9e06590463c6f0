"""Builds kept by content: two at once are safe, and one that is killed leaves nothing in the way.

A build is made in a folder of its own and renamed into place as a whole. There are no lock files:
whoever comes second throws its own copy away. Folders of killed builds are swept later.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

ENVIRONMENT = "TINYPARALLEL_CACHE"
_PREFIX = "building-"
_KEPT_SECONDS = 30 * 24 * 3600.0  # builds of kernels that nobody has used for so long are removed


def cache_folder() -> Path:
    """Where builds are kept.

    $TINYPARALLEL_CACHE, else tinyparallel/ in $XDG_CACHE_HOME or ~/.cache, else a folder of this
    user's in the system's place for temporary files, when none of these can be written.
    """
    named = os.environ.get(ENVIRONMENT)
    if named:
        folder = Path(named).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    private = Path(tempfile.gettempdir()) / f"tinyparallel-{os.getuid()}"
    for folder in (Path(base) / "tinyparallel", private):
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if os.access(folder, os.W_OK) and folder.stat().st_uid == os.getuid():
                return folder
    raise OSError(f"no folder for builds can be written: set {ENVIRONMENT}")


def digest(parts: Iterable[str | bytes]) -> str:
    """A name for what was made from `parts`: 32 hexadecimal digits."""
    state = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little") + data)
    return state.hexdigest()[:32]


def build_once(name: str, build: Callable[[Path], None]) -> Path:
    """The folder `name` of the cache; made by `build(folder)` when it is not there yet.

    What `build` raises is passed on, and nothing is kept.
    """
    top = cache_folder()
    done = top / name
    if done.is_dir():
        with contextlib.suppress(OSError):  # a cache that others own can still be read
            os.utime(done)
        return done
    _sweep(top)
    scratch = Path(tempfile.mkdtemp(dir=top, prefix=_PREFIX))
    # The lock lives as long as this process: a folder that nobody holds is debris.
    held = os.open(scratch, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        build(scratch)
        scratch.chmod(0o755)
        # Who came first keeps its place: both copies were made from the same content.
        with contextlib.suppress(OSError):
            os.rename(scratch, done)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        os.close(held)
    if not done.is_dir():
        raise OSError(f"could not move a build to {done}")
    return done


def _sweep(top: Path) -> None:
    """Remove what killed builds have left, and builds that have long not been used."""
    now = _now(top)
    for build in [*top.glob("cpu-*"), *top.glob("gpu-*")]:
        with contextlib.suppress(OSError):
            if build.stat().st_mtime < now - _KEPT_SECONDS:
                shutil.rmtree(build, ignore_errors=True)
    for scratch in top.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(scratch, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # A folder this young may belong to a process that has not locked it yet.
                if os.fstat(descriptor).st_mtime < now - 60:
                    shutil.rmtree(scratch, ignore_errors=True)
            finally:
                os.close(descriptor)


def _now(top: Path) -> float:
    """The time by the clock of the file system that the cache lies on."""
    with tempfile.TemporaryFile(dir=top) as file:
        return os.fstat(file.fileno()).st_mtime
