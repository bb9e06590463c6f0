"""Commits that are fetched, and commits that try to be more than files."""

from __future__ import annotations

import http.server
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader.submission.clone import (
    MAX_FILE_NBYTES,
    NO_BRANCH,
    CloneError,
    Fetched,
    explain,
    fetch,
    kind_of,
)
from grader.submission.git import GitError, GitLimits, run_git
from grader.submission.links import Kind, Link
from tests.submission.repositories import commit, git, repository

PATH = "assignments/a.py"


def take(folder: Path, ref: str, kind: Kind = "sha", *paths: str) -> Fetched:
    return fetch(Link(str(folder), ref, kind), paths or ("a.py",), local=True)


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    repository(tmp_path / "theirs", {PATH: "old"})
    return tmp_path / "theirs"


def test_the_named_commit_is_taken_not_the_newest(theirs: Path) -> None:
    old = git(theirs, "rev-parse", "HEAD")
    new = commit(theirs, {PATH: "new"})
    for sha, content in ((old, b"old"), (new, b"new")):
        found = take(theirs, sha)
        assert (found.files, found.sha, found.warnings) == ({"a.py": content}, sha, [])


@pytest.mark.parametrize("filters", ["true", "false"])
def test_short_shas_are_resolved(theirs: Path, filters: str) -> None:
    git(theirs, "config", "uploadpack.allowFilter", filters)
    old = git(theirs, "rev-parse", "HEAD")
    commit(theirs, {PATH: "new"})
    assert take(theirs, old[:7], "short").sha == old
    with pytest.raises(CloneError, match="no commit begins with 0000000") as raised:
        take(theirs, "0000000", "short")
    assert raised.value.kind == "missing"


def test_branches_and_tags_are_resolved_also_with_a_path_behind(theirs: Path) -> None:
    git(theirs, "checkout", "--quiet", "-b", "feature/ring")
    branch = commit(theirs, {PATH: "ring"})
    git(theirs, "tag", "--annotate", "v1", "--message", "first")
    commit(theirs, {PATH: "later"})
    assert take(theirs, "v1", "ref").sha == branch
    assert take(theirs, "feature/ring/assignments", "ref").files == {"a.py": b"later"}
    with pytest.raises(
        CloneError, match="no branch or tag is named feature: was it pushed"
    ) as raised:
        take(theirs, "feature", "ref")
    assert raised.value.kind == "missing"


def test_a_commit_on_no_branch_is_reported(theirs: Path) -> None:
    lost = commit(theirs, {PATH: "lost"})
    git(theirs, "reset", "--quiet", "--hard", "HEAD~1")
    found = take(theirs, lost)
    assert found.files == {"a.py": b"lost"} and found.warnings == [NO_BRANCH]


def test_a_commit_of_a_pull_request_is_on_one(theirs: Path) -> None:
    sha = commit(theirs, {PATH: "asked"})
    git(theirs, "update-ref", "refs/pull/3/head", sha)
    git(theirs, "reset", "--quiet", "--hard", "HEAD~1")
    assert take(theirs, sha).warnings == []


def test_what_is_not_there_is_said_plainly(theirs: Path, tmp_path: Path) -> None:
    with pytest.raises(CloneError, match=r"has no commit 0{40}: was it pushed") as raised:
        take(theirs, "0" * 40)
    assert raised.value.kind == "missing"
    with pytest.raises(CloneError, match="private, or there is none of this name") as raised:
        take(tmp_path / "none", "0" * 40)
    assert raised.value.kind == "missing"
    (tmp_path / "empty").mkdir()
    git(tmp_path / "empty", "init", "--quiet")
    with pytest.raises(CloneError, match="nothing was pushed") as raised:
        take(tmp_path / "empty", "0" * 40)
    assert raised.value.kind == "missing"
    blob = git(theirs, "rev-parse", f"HEAD:{PATH}")
    with pytest.raises(CloneError, match="no commit") as raised:
        take(theirs, blob)
    assert raised.value.kind == "missing"


def test_only_files_that_are_asked_for_are_taken(tmp_path: Path) -> None:
    files = {
        PATH: "mine = True",
        "conftest.py": "raise SystemExit",
        "assignments/sitecustomize.py": "raise SystemExit",
    }
    sha = repository(tmp_path / "theirs", files)
    found = take(tmp_path / "theirs", sha, "sha", "a.py", "b.py")
    assert found.files == {"a.py": b"mine = True"} and found.missing == ["b.py"]


def test_what_is_no_regular_file_is_not_taken_and_the_rest_is(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    large = "x" * (MAX_FILE_NBYTES + 1)
    repository(theirs, {PATH: "right", "assignments/large.py": large, "assignments/d/e.py": ""})
    (theirs / "assignments/link.py").symlink_to("/etc/passwd")
    (theirs / "assignments/up").symlink_to("..")
    head = commit(theirs, {})
    git(theirs, "update-index", "--add", "--cacheinfo", f"160000,{head},assignments/module.py")
    git(theirs, "commit", "--quiet", "--message", "a submodule")
    sha = git(theirs, "rev-parse", "HEAD")
    names = ("a.py", "link.py", "large.py", "d", "up/a.py", "module.py")
    found = take(theirs, sha, "sha", *names)
    assert found.files == {"a.py": b"right"} and found.missing == ["up/a.py"]
    assert "not a regular file (mode 120000)" in found.refused["link.py"]
    assert f"{MAX_FILE_NBYTES + 1} bytes" in found.refused["large.py"]
    assert found.refused.keys() == {"link.py", "large.py", "d", "module.py"}


def test_only_the_real_reason_is_told_where_files_cannot_be_found(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    sha = repository(theirs, {"hw/assignments/a.py": "", "x/y/assignments/a.py": ""})
    found = take(theirs, sha)
    (told,) = found.misplaced
    assert told.startswith("the kit is in the folder hw/ of") and not found.missing
    sha = commit(theirs, {"assignments/b/c.py": ""})  # the one that counts, whatever else there is
    assert take(theirs, sha, "sha", "a.py").misplaced == []
    git(theirs, "update-index", "--add", "--cacheinfo", f"160000,{sha},assignments/d")
    git(theirs, "commit", "--quiet", "--message", "a submodule")
    found = take(theirs, git(theirs, "rev-parse", "HEAD"), "sha", "d/e.py", "da/e.py", "b/c.py")
    (told,) = found.misplaced
    assert told.startswith("assignments/d is a submodule of the commit: ")
    assert (found.missing, list(found.files)) == (["da/e.py"], ["b/c.py"])
    for mode, words in (("160000", "a submodule"), ("120000", "no folder")):
        git(theirs, "rm", "-r", "--quiet", "--cached", "assignments")
        blob = git(theirs, "rev-parse", "HEAD:hw/assignments/a.py")
        name = sha if mode == "160000" else blob
        git(theirs, "update-index", "--add", "--cacheinfo", f"{mode},{name},assignments")
        git(theirs, "commit", "--quiet", "--message", words)
        found = take(theirs, git(theirs, "rev-parse", "HEAD"))
        (told,) = found.misplaced
        assert told.startswith(f"assignments is {words} of the commit: ") and not found.missing


def test_a_repository_cannot_run_anything_here(theirs: Path, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    touch = f"touch {witness}"
    files = {
        ".gitattributes": "* filter=evil diff=evil\n",
        ".gitmodules": (
            f'[submodule "m"]\n path = m\n url = ext::sh -c "{touch}"\n update = !{touch}\n'
        ),
        ".lfsconfig": f"[lfs]\n url = ext::{touch}\n",
        ".gitconfig": f'[filter "evil"]\n smudge = {touch}\n',
    }
    sha = commit(theirs, files)
    for name in ("post-checkout", "reference-transaction", "post-merge", "pre-auto-gc"):
        hook = theirs / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\n{touch}\n")
        hook.chmod(0o755)
    git(theirs, "config", "core.fsmonitor", touch)
    git(theirs, "config", "uploadpack.packObjectsHook", touch)
    assert take(theirs, sha).files == {"a.py": b"old"}
    assert not witness.exists()


def test_the_users_own_settings_do_not_act(
    theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    witness = tmp_path / "witness"
    settings = tmp_path / "home" / ".gitconfig"
    settings.parent.mkdir()
    settings.write_text(f'[url "ext::sh -c touch% {witness}"]\n insteadOf = {theirs}\n')
    for name, value in (
        ("HOME", str(settings.parent)),
        ("GIT_CONFIG_GLOBAL", str(settings)),
        ("GIT_CONFIG_COUNT", "1"),
        ("GIT_CONFIG_KEY_0", "protocol.allow"),
        ("GIT_CONFIG_VALUE_0", "always"),
        ("GIT_DIR", str(tmp_path)),
    ):
        monkeypatch.setenv(name, value)
    sha = git(theirs, "rev-parse", "HEAD")
    assert take(theirs, sha).files == {"a.py": b"old"} and not witness.exists()


@pytest.mark.parametrize(
    "url", ["ext::sh -c touch% {}", "file://{}", "{}", "ssh://git@host/{}", "git://host/{}"]
)
def test_only_https_is_spoken_unless_told(url: str, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    with pytest.raises(CloneError, match=r"no way to fetch|not read"):
        fetch(Link(url.format(witness), "0" * 40), ["a.py"])
    assert not witness.exists()


def test_git_itself_refuses_other_transports(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    for url in (f"ext::sh -c touch% {witness}", f"file://{tmp_path}", "ssh://x@localhost/a"):
        with pytest.raises(GitError, match="not allowed"):
            run_git(tmp_path, "ls-remote", "--", url, protocol="https")
    assert not witness.exists()


class _Asks(http.server.BaseHTTPRequestHandler):
    """A host that asks for a name and a password, or sends elsewhere."""

    def do_GET(self) -> None:
        if self.path.startswith("/moved"):
            self.send_response(301)
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        elif self.path[1:4].isdecimal():
            self.send_response(int(self.path[1:4]))
        else:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="x"')
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def host() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Asks)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("private", "the repository is private, or there is none of this name"),
        ("404", "the repository is private, or there is none of this name"),
        ("moved", "the repository has moved"),
    ],
)
def test_a_host_that_says_no_is_understood_and_nobody_is_asked(
    host: str, path: str, words: str
) -> None:
    begin = time.monotonic()
    with pytest.raises(CloneError, match=words) as raised:
        fetch(Link(f"{host}/{path}/x.git", "0" * 40), ["a.py"], local=True)
    assert raised.value.kind == "missing"
    assert time.monotonic() - begin < 30


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("403", "the host refuses to answer"),
        ("429", "the host refuses to answer"),
        ("500", "the host cannot be reached, or broke off"),
        ("503", "the host cannot be reached, or broke off"),
    ],
)
def test_a_host_out_of_order_says_nothing_of_the_commit(host: str, status: str, words: str) -> None:
    with pytest.raises(CloneError, match=words) as raised:
        fetch(Link(f"{host}/{status}/x.git", "0" * 40), ["a.py"], local=True)
    assert raised.value.kind == "unreachable"


def test_a_host_that_is_not_there_says_nothing_of_the_commit() -> None:
    for url in ("http://127.0.0.1:1/a/b.git", "http://nowhere.invalid/a/b.git"):
        with pytest.raises(CloneError, match="cannot be reached") as raised:
            fetch(Link(url, "0" * 40), ["a.py"], local=True)
        assert raised.value.kind == "unreachable"


def test_a_host_that_never_answers_meets_the_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        link = Link(f"http://127.0.0.1:{silent.getsockname()[1]}/a/b.git", "0" * 40)
        with pytest.raises(CloneError, match="not fetched within 1 seconds") as raised:
            fetch(link, ["a.py"], limits=GitLimits(seconds=1), local=True)
        assert raised.value.kind == "limit"


def test_a_large_repository_meets_the_limit(theirs: Path) -> None:
    (theirs / "data.bin").write_bytes(os.urandom(3 << 20))
    sha = commit(theirs, {})
    with pytest.raises(CloneError, match="larger than the limit of 1 MiB") as raised:
        fetch(Link(str(theirs), sha), ["a.py"], limits=GitLimits(nbytes=1 << 20), local=True)
    assert raised.value.kind == "limit"


def test_last_words_are_explained() -> None:
    asked = "fatal: could not read Username for 'https://github.com': terminal prompts disabled"
    assert explain(asked).startswith("the repository is private")
    assert explain("fatal: unable to access 'x': Could not resolve host: y").startswith("the host")
    assert explain("fatal: something else") == "fatal: something else"
    assert kind_of("fatal: something else") == "unreachable" and kind_of(asked) == "missing"
    for words in ("fatal: remote error: upload-pack: not our ref 00", "want 00 not valid"):
        assert kind_of(words) == "missing"
    assert kind_of("fatal: remote error: internal server error") == "unreachable"
