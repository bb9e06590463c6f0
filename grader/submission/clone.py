"""Files of a commit, without a checkout: no hook, symlink, submodule or attribute of it acts.

Only blobs that the task table names are read, straight from git's object store.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from grader.submission.sheet import Link

MAX_FILE_NBYTES: Final = 1 << 20
_MAX_REPOSITORY_KIB: Final = 256 << 10
_REGULAR: Final = ("100644", "100755")


class CloneError(RuntimeError):
    """A commit that cannot be fetched, or lacks what it should hold; the message says which."""


def _environment(local: bool) -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.devnull,
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "true",
        "GIT_ALLOW_PROTOCOL": "file" if local else "https",
        "GIT_NO_LAZY_FETCH": "1",
    }


class Clone:
    """One commit in a bare repository of ours. folder: where it may lie; must be empty.

    Raises `CloneError` when it cannot be fetched within `seconds`.
    """

    def __init__(self, link: Link, folder: Path, seconds: float = 120.0) -> None:
        self._sha = link.sha
        self._folder = folder
        self._seconds = seconds
        self._local = link.url.startswith("/")
        self._git("init", "--quiet", "--bare", ".")
        self._git(
            "-c", "core.hooksPath=/dev/null",
            "-c", "fetch.fsckObjects=true",
            "-c", "transfer.bundleURI=false",
            "-c", "http.followRedirects=false",
            "fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules",
            "--no-write-fetch-head", "--", link.url, link.sha,
        )  # fmt: skip
        used = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) >> 10
        if used > _MAX_REPOSITORY_KIB:
            limit = _MAX_REPOSITORY_KIB >> 10
            raise CloneError(f"the commit holds {used >> 10} MiB; the limit is {limit} MiB")

    def _git(self, *arguments: str) -> bytes:
        try:
            done = subprocess.run(
                ["git", *arguments],
                cwd=self._folder,
                env=_environment(self._local),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self._seconds,
            )
        except subprocess.TimeoutExpired:
            raise CloneError(f"not fetched within {self._seconds:g} seconds") from None
        if done.returncode != 0:
            lines = done.stderr.decode("utf-8", errors="replace").strip().splitlines()
            raise CloneError(lines[-1][:300] if lines else f"git ended with {done.returncode}")
        return done.stdout

    def file(self, path: str) -> bytes | None:
        """The content of a file of the commit; None when it is not there.

        Raises `CloneError` for a symlink, a submodule, a folder, or more than 1 MiB.
        """
        listed = self._git("ls-tree", "-l", "-z", self._sha, "--", path).split(b"\0")[0]
        if not listed:
            return None
        mode, kind, name, size = listed.partition(b"\t")[0].decode().split()
        if kind != "blob" or mode not in _REGULAR:
            raise CloneError(f"{path} is not a regular file (mode {mode})")
        if int(size) > MAX_FILE_NBYTES:
            raise CloneError(f"{path} has {size} bytes; the limit is {MAX_FILE_NBYTES}")
        return self._git("cat-file", "blob", name)

    def lay_over(self, folder: Path, paths: Iterable[str]) -> list[str]:
        """Write the files of `assignments/` that `paths` name over a kit's; returns those missing.

        Raises `CloneError`.
        """
        missing = []
        for path in paths:
            content = self.file(f"assignments/{path}")
            if content is None:
                missing.append(path)
            else:
                (folder / path).write_bytes(content)
        return missing
