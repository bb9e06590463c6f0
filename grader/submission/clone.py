"""Files of a commit, without a checkout: no hook, symlink, submodule or attribute of it acts.

Only blobs that the task table names are read, straight from git's object store.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final, Literal

from grader.submission.git import GitError, GitLimit, GitLimits, run_git
from grader.submission.links import Link

MAX_FILE_NBYTES: Final = 1 << 20
_MAX_REFS: Final = 20_000
_REGULAR: Final = ("100644", "100755")
_FOLDER: Final = "040000"
_SUBMODULE: Final = "160000"
_INNER: Final = "/assignments"
_SHA = re.compile(r"[0-9a-f]{40}")
NO_BRANCH: Final = (
    "the commit is on no branch, tag or pull request of the repository: pushed away by force, or "
    "only in a fork"
)


CloneErrorKind = Literal["missing", "unreachable", "limit"]


class CloneError(RuntimeError):
    """A commit that cannot be fetched, or lacks what it should hold; the message says which.

    kind: "missing" when the host answered that there is no such commit, or none that everybody may
    read; "limit" when it is too large or takes too long here; "unreachable" for all that says
    nothing of the commit: a broken network, a host out of order, what nobody has foreseen.
    """

    def __init__(self, message: str, kind: CloneErrorKind = "unreachable") -> None:
        super().__init__(message)
        self.kind: Final = kind


@dataclass
class Fetched:
    """What was found. files: path inside `assignments/` → content, of regular files.

    missing: paths that are not in the commit. refused: path → why it was not taken.
    misplaced: why nobody can find `assignments/`, or files of it, in the commit.
    """

    sha: str
    files: dict[str, bytes] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    misplaced: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def fetch(
    link: Link,
    paths: Iterable[str],
    *,
    limits: GitLimits | None = None,
    local: bool = False,
    scratch: str = "",
) -> Fetched:
    """The files of `assignments/` that `paths` name, at the link's commit.

    local: repositories on this machine may be read. scratch: where the clone may lie; "" is the
    system's folder. Raises `CloneError`.
    """
    with tempfile.TemporaryDirectory(prefix="tinyparallel-clone-", dir=scratch or None) as folder:
        clone = Clone(link, Path(folder), limits=limits, local=local)
        found = Fetched(clone.sha, warnings=list(clone.warnings))
        wanted = {path: f"assignments/{path}" for path in paths}
        found.misplaced, hidden = clone.misplaced(wanted.values())
        for path, place in wanted.items():
            if place.startswith(hidden):
                continue
            try:
                content = clone.file(place)
            except CloneError as error:
                found.refused[path] = str(error)
                continue
            if content is None:
                found.missing.append(path)
            else:
                found.files[path] = content
        return found


class Clone:
    """One commit in a bare repository of ours. folder: where it may lie; must be empty.

    sha: the commit, in full. warnings: what a person should know of it.
    Raises `CloneError` when it cannot be fetched within the limits.
    """

    def __init__(
        self, link: Link, folder: Path, *, limits: GitLimits | None = None, local: bool = False
    ) -> None:
        on_disk = link.url.startswith(("/", "file://"))
        if on_disk and not local:
            raise CloneError("repositories on this machine are not read")
        self._folder = folder
        self._limits = limits or GitLimits()
        self._protocol = "file" if on_disk else link.url.partition(":")[0]
        if self._protocol not in ("file", "https") and not local:
            raise CloneError(f"{self._protocol} is no way to fetch a submission")
        self.warnings: list[str] = []
        self._url = link.url
        self._git("init", "--quiet", "--bare", "--template=", ".")
        refs = self._refs()
        self.sha = self._resolve(link, refs)
        if self.sha not in refs.values():
            self._fetch_history(refs)
            if not self._reachable():
                self.warnings.append(NO_BRANCH)
        self._fetch_commit()

    def _git(self, *arguments: str) -> bytes:
        try:
            return run_git(self._folder, *arguments, protocol=self._protocol, limits=self._limits)
        except GitLimit as error:
            raise CloneError(str(error), "limit") from None
        except GitError as error:
            raise CloneError(explain(str(error)), kind_of(str(error))) from None

    def _refs(self) -> dict[str, str]:
        """Branches, tags (as the commits they mean) and pull requests of the repository → SHA."""
        listed = self._git("ls-remote", "--quiet", "--", self._url).decode(errors="replace")
        refs: dict[str, str] = {}
        for line in listed.splitlines()[:_MAX_REFS]:
            sha, _, name = line.partition("\t")
            if _SHA.fullmatch(sha):
                refs[name.removesuffix("^{}")] = sha
        if not refs:
            raise CloneError("the repository is empty: nothing was pushed", "missing")
        return refs

    def _resolve(self, link: Link, refs: dict[str, str]) -> str:
        if link.kind == "sha":
            return link.ref
        if link.kind == "short":
            named = {sha for sha in refs.values() if sha.startswith(link.ref)}
            if len(named) != 1:
                self._fetch_history(refs)
                named = self._starting_with(link.ref)
            if len(named) == 1:
                return named.pop()
            if len(named) > 1:
                raise CloneError(
                    f"{len(named)} commits begin with {link.ref}: give all 40 digits", "missing"
                )
        # A branch may have slashes in its name, and a path may stand behind it.
        parts = link.ref.split("/")
        for end in range(len(parts), 0, -1):
            name = "/".join(parts[:end])
            for place in ("refs/heads", "refs/tags"):
                if f"{place}/{name}" in refs:
                    return refs[f"{place}/{name}"]
        if link.kind == "short":
            raise CloneError(
                f"no commit begins with {link.ref}: was it pushed? was it pushed away by force?",
                "missing",
            )
        raise CloneError(
            f"no branch or tag is named {link.ref[:100]}: was it pushed? was it pushed away by "
            "force?",
            "missing",
        )

    def _fetch_history(self, refs: dict[str, str]) -> None:
        """The commits of all branches, tags and pull requests, without files; once."""
        kinds = ("refs/heads/", "refs/tags/", "refs/pull/", "refs/merge-requests/")
        if any(name.startswith(kinds) for name in refs) and not (self._folder / "seen").exists():
            (self._folder / "seen").touch()
            self._git("config", "remote.origin.url", self._url)
            self._git(
                "fetch", "--quiet", "--no-tags", "--no-recurse-submodules",
                "--no-write-fetch-head", "--filter=tree:0", "origin",
                *(f"+{kind}*:refs/seen/{kind.split('/')[1]}/*" for kind in kinds),
            )  # fmt: skip

    def _starting_with(self, short: str) -> set[str]:
        found = self._git("rev-list", "--all").decode().split()
        return {sha for sha in found if sha.startswith(short)}

    def _reachable(self) -> bool:
        return self.sha in self._git("rev-list", "--all").decode().split()

    def _fetch_commit(self) -> None:
        try:
            self._git(
                "fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules",
                "--no-write-fetch-head", "--refetch", "--", self._url, self.sha,
            )  # fmt: skip
            kind = self._git("cat-file", "-t", self.sha).decode().strip()
        except CloneError as error:
            if _NO_COMMIT.search(str(error)):
                raise CloneError(
                    f"the repository has no commit {self.sha}: was it pushed? was it pushed away "
                    "by force? is it in a fork?",
                    "missing",
                ) from None
            raise
        if kind != "commit":
            raise CloneError(f"{self.sha} is a {kind}, no commit", "missing")

    def misplaced(self, paths: Iterable[str]) -> tuple[list[str], tuple[str, ...]]:
        """(why some of these files are not to be found, how the paths of those begin)."""
        listed = self._git("ls-tree", "-t", "-z", self.sha, "--", *folders_of(paths))
        others = no_folders(listed.decode(errors="replace"))
        if listed:
            return list(others.values()), tuple(others)
        listed = self._git("ls-tree", "-r", "-d", "--name-only", "-z", self.sha)
        folders = [f for f in listed.decode(errors="replace").split("\0") if f.endswith(_INNER)]
        if not folders:
            return [], ()
        return [in_folder(min(folders, key=len).removesuffix(_INNER[1:]))], (f"{_INNER[1:]}/",)

    def file(self, path: str) -> bytes | None:
        """The content of a file of the commit; None when it is not there.

        Raises `CloneError` for a symlink, a submodule, a folder, or more than 1 MiB.
        """
        listed = self._git("ls-tree", "-l", "-z", self.sha, "--", path).split(b"\0")[0]
        if not listed:
            return None
        mode, kind, name, size = listed.partition(b"\t")[0].decode().split()
        refused = refusal(path, mode, kind, size)
        if refused:
            raise CloneError(refused, "missing")
        return self._git("cat-file", "blob", name)


def folders_of(paths: Iterable[str]) -> list[str]:
    """The folders in which these files lie, and those above them."""
    parents = (parent for path in paths for parent in PurePosixPath(path).parents)
    return sorted({str(parent) for parent in parents} - {"."})


def no_folders(listed: str) -> dict[str, str]:
    """Of folders of a commit, as `git ls-tree -z` has them: how paths in it would begin → why not.

    A symlink below `assignments` is none of these: what it leads to may be told of.
    """
    found = {}
    for entry, _, path in (each.partition("\t") for each in listed.split("\0")):
        mode = entry.partition(" ")[0]
        if mode == _SUBMODULE or (path == _INNER[1:] and mode != _FOLDER):
            kind = "a submodule" if mode == _SUBMODULE else "no folder"
            found[f"{path}/"] = (
                f"{path} is {kind} of the commit: the batch looks for assignments/ at the top of "
                "the repository, as a folder with its files"
            )
    return found


def in_folder(folder: str) -> str:
    """What to tell of a kit below the top of its repository. folder: as "hw/"."""
    return (
        f"the kit is in the folder {folder} of the repository: the batch looks for "
        "assignments/ at the top; make the kit a repository of its own"
    )


def refusal(path: str, mode: str, kind: str, size: str) -> str:
    """Why a file of a commit, as `git ls-tree -l` has it, is not taken; "" when it is."""
    if kind != "blob" or mode not in _REGULAR:
        return f"{path} is not a regular file (mode {mode})"
    if int(size) > MAX_FILE_NBYTES:
        return f"{path} has {size} bytes; the limit is {MAX_FILE_NBYTES}"
    return ""


_CLOSED = re.compile(
    r"could not read (Username|Password)|Authentication failed|[Rr]epository '?.*not found|"
    r"returned error: (401|404|410)|Permission denied|does not exist|not appear to be a git"
)
_MOVED = re.compile(r"redirect|returned error: 30\d")
# A host answers so to an address that asks too often, and to some also for what is private.
_REFUSED = re.compile(r"returned error: (403|429)")
_BROKEN = re.compile(
    r"Could not resolve host|Failed to connect|Connection (refused|timed out|reset)|"
    r"unable to access|Operation too slow|early EOF|RPC failed"
)
#: How hosts say that they have no such commit: git's, JGit's, and one that gives branches only.
_NO_COMMIT = re.compile(
    r"not our ref|no such remote ref|find remote ref|unadvertised object|want \S+ not valid"
)


def kind_of(words: str) -> CloneErrorKind:
    """What git's last words say of the commit; nothing where they are not understood."""
    if _REFUSED.search(words):
        return "unreachable"
    answers = (_CLOSED, _MOVED, _NO_COMMIT)
    return "missing" if any(each.search(words) for each in answers) else "unreachable"


def explain(words: str) -> str:
    """git's last words as a person would say them."""
    known = (
        (_CLOSED, "the repository is private, or there is none of this name: nobody can read it "
         "without an account"),
        (_MOVED, "the repository has moved: hand in a link to where it is now"),
        (_REFUSED, "the host refuses to answer: it was asked too often, or the repository is "
         "blocked"),
        (_BROKEN, "the host cannot be reached, or broke off: run the batch again"),
    )  # fmt: skip
    lines = [line for line in words.strip().splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("fatal:", "error:", "remote:"))]
    last = (telling or lines or ["git failed"])[-1]
    for pattern, meaning in known:
        if pattern.search(words):
            return f"{meaning} ({last[:200]})"
    return last[:300]
