"""Local repositories that look like a student's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    **{f"GIT_{who}_{what}": value
       for who in ("AUTHOR", "COMMITTER")
       for what, value in (("NAME", "Student"), ("EMAIL", "student@example.org"))},
}  # fmt: skip


def git(folder: Path, *arguments: str) -> str:
    """Run git there; what it says."""
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=ENVIRONMENT, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def repository(folder: Path, files: dict[str, str]) -> str:
    """Make a repository of these files; the SHA of its commit."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    return commit(folder, files)


def commit(folder: Path, files: dict[str, str]) -> str:
    """Write the files and commit all; the SHA."""
    for name, content in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content, encoding="utf-8")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "work")
    return git(folder, "rev-parse", "HEAD")
