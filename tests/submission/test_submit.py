"""`grader submit`: what is wrong with a checkout is said plainly, and the link leads to it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from grader.submission.checkout import Checkout, NoCheckout, look
from grader.submission.links import Link, parse_link
from tests.submission.repositories import ENVIRONMENT, commit, git, repository

ROOT = Path(__file__).resolve().parents[2]
WHERE = "assignments/a1_collectives/collectives.py"
URL = "https://github.com/ann/homework.git"


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A student's checkout, pushed to a remote that calls itself GitHub."""
    mine = tmp_path / "mine"
    given = (ROOT / "assignments/a1_collectives/given.py").read_text(encoding="utf-8")
    files = {
        WHERE: (ROOT / WHERE).read_text(encoding="utf-8"),
        "assignments/a1_collectives/given.py": given,
        "assignments/__init__.py": "",
        "VERSION": "tinyparallel\n",
        "grader/tasks.py": "",
        ".gitignore": "report/\n.tinyparallel/\n",
    }
    repository(mine, files)
    git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main", "remote.git")
    git(mine, "remote", "add", "origin", str(tmp_path / "remote.git"))
    push(mine)
    git(mine, "remote", "set-head", "origin", "main")
    git(mine, "remote", "set-url", "origin", URL)
    return mine


def push(mine: Path) -> None:
    url = git(mine, "remote", "get-url", "origin")
    git(mine, "remote", "set-url", "origin", str(mine.parent / "remote.git"))
    git(mine, "push", "--quiet", "origin", "HEAD")
    git(mine, "remote", "set-url", "origin", url)


def said(found: Checkout) -> str:
    return "\n".join([*found.problems, "--", *found.notes])


def test_a_clean_pushed_checkout_has_a_link_that_batch_reads(mine: Path) -> None:
    sha = commit(mine, {WHERE: "mine"})
    push(mine)
    found = look(mine)
    assert not found.problems and found.link == f"https://github.com/ann/homework/tree/{sha}"
    assert parse_link(found.link) == Link(URL, sha)
    assert [note for note in found.notes if "not in the commit" not in note] == []


def test_uncommitted_work_is_a_problem_only_in_graded_files(mine: Path) -> None:
    (mine / WHERE).write_text("changed")
    (mine / "notes.txt").write_text("mine")
    found = look(mine)
    assert f"not committed: {WHERE}: git add" in said(found) and not found.link
    assert "not committed, and not graded: notes.txt" in found.notes
    commit(mine, {})
    push(mine)
    found = look(mine)
    assert found.link and "not looked at when grading: notes.txt" in found.notes


def test_graded_files_that_git_ignores_are_not_forgotten(mine: Path) -> None:
    new = mine / "assignments/a2_ring_all_reduce/ring.py"
    new.parent.mkdir()
    new.write_text("mine")
    (mine / ".git/info/exclude").write_text("ring.py\n")
    assert "not committed: assignments/a2_ring_all_reduce/ring.py" in said(look(mine))


def test_unpushed_commits_are_counted(mine: Path) -> None:
    commit(mine, {WHERE: "one"})
    commit(mine, {WHERE: "two"})
    found = look(mine)
    assert found.problems == ["not pushed: 2 commits: git push origin main"] and not found.link


def test_another_branch_is_noted_and_its_link_is_good(mine: Path) -> None:
    git(mine, "checkout", "--quiet", "-b", "try")
    sha = commit(mine, {WHERE: "one"})
    assert "git push origin try" in said(look(mine))
    push(mine)
    found = look(mine)
    assert "you are on the branch try, not on main" in said(found) and found.link.endswith(sha)
    assert "not on lab" in said(look(mine, branch="lab"))
    git(mine, "checkout", "--quiet", "--detach")
    assert "on no branch (detached)" in said(look(mine))


def test_edits_outside_the_stubs_are_named(mine: Path) -> None:
    commit(mine, {"assignments/a1_collectives/given.py": "", "grader/tasks.py": "POINTS = 1000"})
    push(mine)
    found = look(mine)
    outside = "edited outside the stub files: assignments/a1_collectives/given.py, grader/tasks.py"
    assert outside in said(found) and found.link


def test_no_remote_no_commit_no_repository(mine: Path, tmp_path: Path) -> None:
    git(mine, "remote", "set-url", "origin", "/srv/git/homework.git")
    assert "which is on no host" in said(look(mine))
    git(mine, "remote", "remove", "origin")
    assert "no remote named origin (there is none)" in said(look(mine))
    assert "no remote named other" in said(look(mine, remote="other"))
    (tmp_path / "new").mkdir()
    with pytest.raises(NoCheckout, match="is in no git repository"):
        look(tmp_path / "new")
    git(tmp_path / "new", "init", "--quiet")
    assert look(tmp_path / "new").problems == ["nothing is committed yet: git add, git commit"]


def test_a_token_in_the_branch_remote_is_not_printed(mine: Path) -> None:
    sha = git(mine, "rev-parse", "HEAD")
    token = "https://ann:ghp_SECRET@github.com/ann/homework.git"
    git(mine, "config", "branch.main.remote", token)
    found = look(mine)
    assert found.link == f"https://github.com/ann/homework/tree/{sha}"
    git(mine, "remote", "set-url", "origin", "ftp://ann:SECRET@github.com/ann/homework.git")
    assert "SECRET" not in said(look(mine)) and look(mine).problems
    for found in (look(mine, remote=token), look(mine, remote="SECRET@github.com:ann/x")):
        assert "SECRET" not in said(found) and "no remote named" in said(found)


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_hidden_edits_are_not_what_is_handed_in(mine: Path, flag: str) -> None:
    git(mine, "update-index", flag, WHERE)
    (mine / WHERE).write_text("better")
    found = look(mine)
    assert f"what is committed is not what is graded here: {WHERE}" in said(found)
    assert not found.link


def test_a_filter_that_commits_something_else(mine: Path) -> None:
    (mine / ".git/info/attributes").write_text("*.py filter=lfs\n")
    git(mine, "config", "filter.lfs.clean", "echo version https://git-lfs.github.com/spec/v1")
    (mine / WHERE).write_text("mine")
    commit(mine, {})
    push(mine)
    found = look(mine)
    assert f"what is committed is not what is graded here: {WHERE}" in said(found)
    assert not found.link


def test_line_ends_are_no_difference(mine: Path) -> None:
    git(mine, "config", "core.autocrlf", "true")
    commit(mine, {WHERE: "one\r\ntwo\r\n"})
    push(mine)
    assert b"\r" in (mine / WHERE).read_bytes() and look(mine).link


def test_what_the_batch_refuses_is_a_problem(mine: Path) -> None:
    (mine / WHERE).rename(mine / "elsewhere.py")
    (mine / WHERE).symlink_to("../../elsewhere.py")
    commit(mine, {})
    push(mine)
    found = look(mine)
    assert f"will not take it: {WHERE} is not a regular file (mode 120000)" in said(found)
    assert not found.link
    (mine / WHERE).unlink()
    commit(mine, {WHERE: "#" * ((1 << 20) + 1)})
    push(mine)
    found = look(mine)
    assert f"will not take it: {WHERE} has 1048577 bytes" in said(found) and not found.link


def test_a_folder_behind_a_symlink_is_not_in_the_commit(mine: Path) -> None:
    (mine / "assignments/a1_collectives").rename(mine / "mine")
    (mine / "assignments/a1_collectives").symlink_to("../mine")
    commit(mine, {})
    push(mine)
    found = look(mine)
    assert f"not what is graded here: {WHERE}" in said(found) and not found.link


def test_the_kit_must_be_at_the_top(mine: Path, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    repository(outer, {"hw/assignments/a1_collectives/collectives.py": "mine"})
    assert "the kit is in the folder hw/ of the repository" in said(look(outer / "hw"))
    assert "not in the commit" not in said(look(outer / "hw"))
    sub = tmp_path / "sub"
    repository(sub, {"README.md": ""})
    git(sub, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(mine), "assignments")
    commit(sub, {})
    assert "assignments is a submodule of the commit" in said(look(sub))
    assert "not in the commit" not in said(look(sub))
    git(
        mine,
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "add",
        "-q",
        str(sub),
        "assignments/a3_data_parallel",
    )
    commit(mine, {})
    told = said(look(mine))
    assert "assignments/a3_data_parallel is a submodule of the commit" in told
    missing = next(line for line in told.splitlines() if line.startswith("not in the commit"))
    assert "a2_ring" in missing and "a3_" not in missing


def test_it_grades_writes_a_report_and_prints_the_link(mine: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "grader", "submit", "a1.barrier", "--no-throughput", "--lang", "en"],
        cwd=mine,
        env=ENVIRONMENT | {"PYTHONPATH": str(ROOT), "HOME": os.environ.get("HOME", "/")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    sha = git(mine, "rev-parse", "HEAD")
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.splitlines()[-1] == f"https://github.com/ann/homework/tree/{sha}"
    assert "a1.barrier" in (mine / "report/report.md").read_text(encoding="utf-8")
    page = (mine / "report/report.html").read_text(encoding="utf-8")
    assert "a1.barrier" in page and sha in page and "src=" not in page
