"""The state of a student's checkout: can what he has be handed in, and is it what he thinks?"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from grader import tasks
from grader.submission.clone import folders_of, in_folder, no_folders, refusal
from grader.submission.remotes import NoLink, is_address, link_to, problem_of, shown

_SECONDS: Final = 30.0
_MOST: Final = 8
_ENVIRONMENT: Final = {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_REPLACE_OBJECTS": "1"}


class NoCheckout(RuntimeError):
    """There is no repository, or no git."""


@dataclass
class Checkout:
    """problems: what must be put right before the link is worth anything. notes: what to know.

    link: to hand in; "" as long as there is a problem that makes it lead nowhere.
    """

    sha: str = ""
    branch: str = ""
    link: str = ""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def look(folder: Path, remote: str = "", branch: str = "") -> Checkout:
    """What stands in the checkout that holds `folder`.

    remote: its name; "" is the branch's own, else origin, else the only one. branch: the one that
    work should be on; "" is the remote's main one. Asks nobody else: what was pushed is what
    this checkout remembers of it. Raises `NoCheckout`.
    """
    git = _Git(folder)
    found = Checkout()
    found.sha = git.line("rev-parse", "--verify", "--quiet", "HEAD")
    if not found.sha:
        found.problems.append("nothing is committed yet: git add, git commit")
        return found
    found.branch = git.line("symbolic-ref", "--quiet", "--short", "HEAD")
    hidden = _top(git, found)
    _uncommitted(git, found, hidden)
    _outside(git, found)
    remotes = git.lines("remote")
    name = remote or git.line("config", f"branch.{found.branch}.remote")
    # `git push -u ADDRESS` leaves the address, and whatever token it holds, as the branch's remote.
    if not name or name == "." or (not remote and name not in remotes and is_address(name)):
        name = "origin" if "origin" in remotes or len(remotes) != 1 else remotes[0]
    if name not in remotes:
        there = f"there are {', '.join(remotes)}" if remotes else "there is none"
        found.problems.append(
            f"no remote named {shown(name)} ({there}): make a repository on GitHub and "
            f"git remote add {'origin' if is_address(name) else name} URL"
        )
        return found
    _branch(git, found, name, branch)
    _unpushed(git, found, name)
    url = git.line("remote", "get-url", name)
    try:
        link = link_to(url, found.sha)
    except NoLink as error:
        found.problems.append(problem_of(name, url, error))
    else:
        found.link = "" if found.problems else link
    return found


class _Git:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        if not self.line("rev-parse", "--show-toplevel"):
            raise NoCheckout(f"{folder} is in no git repository: git init, or clone yours")
        #: "" at the top of the repository, else the folders down to this one, as "hw/".
        self.prefix = self.line("rev-parse", "--show-prefix")
        self._folder = Path(self.line("rev-parse", "--show-toplevel"))

    @property
    def top(self) -> Path:
        """The top of the working tree."""
        return self._folder

    def output(self, *arguments: str) -> bytes:
        """What git prints; nothing when it fails."""
        try:
            done = subprocess.run(
                ["git", "-c", "core.fsmonitor=false", *arguments],
                cwd=self._folder,
                env=os.environ | _ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_SECONDS,
            )
        except FileNotFoundError:
            raise NoCheckout("git is not installed") from None
        except subprocess.TimeoutExpired:
            raise NoCheckout(f"git {arguments[0]} did not end within {_SECONDS:g} s") from None
        return done.stdout if done.returncode == 0 else b""

    def text(self, *arguments: str) -> str:
        return self.output(*arguments).decode("utf-8", errors="replace")

    def line(self, *arguments: str) -> str:
        return self.text(*arguments).strip()

    def lines(self, *arguments: str) -> list[str]:
        return self.text(*arguments).splitlines()

    def paths(self, *arguments: str) -> list[str]:
        return [path for path in self.text(*arguments, "-z").split("\0") if path]


def _graded() -> set[str]:
    return {f"assignments/{path}" for path in tasks.student_files()}


def _uncommitted(git: _Git, found: Checkout, hidden: tuple[str, ...]) -> None:
    changed = git.paths("diff", "--name-only", "HEAD")
    untracked = git.paths("ls-files", "--others", "--exclude-standard")
    # A graded file that .gitignore hides would be missing without a word.
    ignored = git.paths("ls-files", "--others", "--ignored", "--exclude-standard", "assignments")
    graded = sorted({*changed, *untracked, *ignored} & _graded())
    if graded:
        found.problems.append(
            f"not committed: {_some(graded)}: git add them, git commit (the link leads to what is "
            "committed)"
        )
    _committed(git, found, graded, hidden)
    others = sorted({*changed, *untracked} - _graded())
    if others:
        found.notes.append(f"not committed, and not graded: {_some(others)}")
    there = set(git.paths("ls-tree", "-r", "--name-only", "HEAD", "assignments"))
    missing = sorted(p for p in _graded() - there - set(graded) if not p.startswith(hidden))
    if missing:
        found.notes.append(f"not in the commit, so that its tasks earn nothing: {_some(missing)}")


def _top(git: _Git, found: Checkout) -> tuple[str, ...]:
    """Begins of paths that the commit cannot have, of which is told why.

    The batch takes `assignments/` from the top of the repository, and from nowhere else.
    """
    if git.prefix:
        found.problems.append(in_folder(git.prefix))
    listed = git.text("ls-tree", "-t", "-z", "HEAD", "--", *folders_of(_graded()))
    others = no_folders(listed)
    found.problems += others.values()
    return ("assignments/",) if git.prefix else tuple(others)


def _committed(git: _Git, found: Checkout, told: list[str], hidden: tuple[str, ...]) -> None:
    """Hold what was committed against what is graded here, byte by byte; told: what differs.

    git's own word is not enough: filters (LFS), --assume-unchanged and --skip-worktree make it
    call files unchanged that are other ones in the commit.
    """
    listed = git.text("ls-tree", "-r", "-l", "-z", "HEAD", "assignments").split("\0")
    entries = {path: entry.split() for entry, _, path in (each.partition("\t") for each in listed)}
    others: list[str] = []
    for path in sorted(p for p in _graded() - set(told) if not p.startswith(hidden)):
        place, entry = git.top / path, entries.get(path)
        if entry is None:
            # Through a symlink to a folder, say, which git does not follow.
            others += [path] * place.is_file()
            continue
        mode, kind, name, size = entry
        refused = refusal(path, mode, kind, size)
        if refused:
            found.problems.append(f"the batch will not take it: {refused}")
            continue
        try:
            here = place.read_bytes()
        except OSError:
            here = None
        there = git.output("cat-file", "blob", name)
        if here is None or here.replace(b"\r\n", b"\n") != there.replace(b"\r\n", b"\n"):
            others.append(path)
    if others:
        found.problems.append(
            f"what is committed is not what is graded here: {_some(others)}: look at them with git "
            "show HEAD:FILE (a filter or LFS, --assume-unchanged, --skip-worktree, a symlink to a "
            "folder?)"
        )


def _outside(git: _Git, found: Checkout) -> None:
    """What differs from the kit as it was handed out, and is not looked at when grading."""
    # The commit that brought the kit's VERSION; without one, nobody can say what was handed out.
    began = git.lines("log", "--diff-filter=A", "--format=%H", "--", "VERSION")
    if not began:
        return
    changed = git.paths("diff", "--name-only", began[-1], "HEAD")
    outside = [path for path in changed if path not in _graded()]
    ours = [p for p in outside if p.startswith(("assignments/", "grader/", "kernels/"))]
    if ours:
        found.notes.append(
            f"edited outside the stub files: {_some(ours)}: grading takes its own copy of these, "
            "so that your solution must not depend on the edits"
        )
    others = [path for path in outside if path not in ours]
    if others:
        found.notes.append(f"not looked at when grading: {_some(others)}")


def _branch(git: _Git, found: Checkout, remote: str, wanted: str) -> None:
    head = git.line("symbolic-ref", "--quiet", "--short", f"refs/remotes/{remote}/HEAD")
    wanted = wanted or head.removeprefix(f"{remote}/")
    if not found.branch:
        found.notes.append("HEAD is on no branch (detached): later commits are easily lost")
    elif wanted and found.branch != wanted:
        found.notes.append(
            f"you are on the branch {found.branch}, not on {wanted}: the link leads to this "
            "branch's commit"
        )


def _unpushed(git: _Git, found: Checkout, remote: str) -> None:
    holding = git.lines(
        "for-each-ref", "--contains", found.sha, "--format=%(refname)", f"refs/remotes/{remote}/"
    )
    if holding:
        return
    ahead = git.line("rev-list", "--count", "HEAD", "--not", f"--remotes={remote}")
    count = "the commit" if not ahead else "1 commit" if ahead == "1" else f"{ahead} commits"
    target = found.branch or "HEAD:main"
    found.problems.append(f"not pushed: {count}: git push {remote} {target}")


def _some(paths: list[str]) -> str:
    more = len(paths) - _MOST
    shown = ", ".join(paths[:_MOST])
    return f"{shown} and {more} more" if more > 0 else shown
