"""From local repositories to a table of points; and commits that try to be more than files."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from grader import tasks
from grader.checks.settings import CannotRun
from grader.submission.batch import BatchOptions, Row, run_batch, write_gradebook
from grader.submission.clone import Clone, CloneError
from grader.submission.sheet import Link
from tests.submission.repositories import commit, git, repository

ROOT = Path(__file__).resolve().parents[2]
WHERE = "assignments/a1_collectives/collectives.py"
SOLVED = (ROOT / "reference/a1_collectives/collectives.py").read_text(encoding="utf-8")
BESIDE = {  # of another task, which the solved file builds on
    "assignments/a1_collectives/point_to_point.py": (
        ROOT / "reference/a1_collectives/point_to_point.py"
    ).read_text(encoding="utf-8")
}
STUB = (ROOT / WHERE).read_text(encoding="utf-8")
TOLD = BatchOptions(throughput=False, allow_local=True, unsandboxed=True)


def instead(body: str) -> str:
    return f"{SOLVED}\n\ndef broadcast(tensor, src, group=None):\n    {body}\n"


def gradebook(path: Path) -> dict[str, dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return {row["student"]: row for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    folder = tmp_path_factory.mktemp("batch")
    contents = {
        "right": SOLVED,
        "stub": STUB,
        "hang": instead("while True: pass"),
        "crash": instead("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"),
    }
    lines = ["student,link"]
    for name, content in contents.items():
        sha = repository(folder / name, {WHERE: content, **BESIDE})
        lines.append(f"{name},{folder / name}/tree/{sha}")
    lines.append(f"bad link,{folder / 'right'}/tree/main")
    lines.append(f"gone,{folder / 'right'}/tree/{'0' * 40}")
    sheet = folder / "sheet.csv"
    sheet.write_text("\n".join(lines), encoding="utf-8")
    said: list[str] = []
    run_batch(sheet, ["a1.broadcast"], folder / "out", TOLD, said.append)
    assert len(said) == 6
    return gradebook(folder / "out" / "gradebook.csv")


@pytest.mark.parametrize(
    ("student", "status", "task_status"),
    [
        ("right", "graded", "passed"),
        ("stub", "graded", "unimplemented"),
        ("hang", "graded", "timeout"),
        ("crash", "graded", "error"),
        ("bad link", "bad link", ""),
        ("gone", "not fetched", ""),
    ],
)
def test_submission(
    graded: dict[str, dict[str, str]], student: str, status: str, task_status: str
) -> None:
    row = graded[student]
    assert (row["status"], row["a1.broadcast status"]) == (status, task_status), row
    full = task_status == "passed"
    assert (float(row["points"]) == tasks.find("a1.broadcast").points) == full
    assert (float(row["points"]) == 0.0) == (not full)
    assert bool(row["note"]) == (status != "graded")


def test_nothing_is_graded_without_a_sandbox_unless_told(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match="--unsandboxed"):
        run_batch(tmp_path / "sheet.csv", [], tmp_path, BatchOptions())
    assert list(tmp_path.iterdir()) == []


def test_only_files_of_the_table_are_taken(tmp_path: Path) -> None:
    files = {
        WHERE: "mine = True",
        "assignments/a1_collectives/given.py": "changed = True",
        "conftest.py": "raise SystemExit",
        "assignments/a1_collectives/sitecustomize.py": "raise SystemExit",
    }
    sha = repository(tmp_path / "theirs", files)
    (tmp_path / "bare").mkdir()
    clone = Clone(Link(str(tmp_path / "theirs"), sha), tmp_path / "bare")
    kit = tmp_path / "kit"
    (kit / "a1_collectives").mkdir(parents=True)
    (kit / "a1_collectives/given.py").write_text("ours = True")
    missing = clone.lay_over(
        kit, ["a1_collectives/collectives.py", "a1_collectives/point_to_point.py"]
    )
    assert missing == ["a1_collectives/point_to_point.py"]
    assert sorted(path.name for path in kit.rglob("*.py")) == ["collectives.py", "given.py"]
    assert (kit / "a1_collectives/given.py").read_text() == "ours = True"


def test_the_named_commit_is_taken_not_the_newest(tmp_path: Path) -> None:
    sha = repository(tmp_path / "theirs", {"assignments/a.py": "old"})
    commit(tmp_path / "theirs", {"assignments/a.py": "new"})
    (tmp_path / "bare").mkdir()
    clone = Clone(Link(str(tmp_path / "theirs"), sha), tmp_path / "bare")
    assert clone.file("assignments/a.py") == b"old"


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    repository(theirs, {"assignments/large.py": "x" * (1 << 20) + "y", "assignments/d/e.py": ""})
    (theirs / "assignments/link.py").symlink_to("/etc/passwd")
    sha = commit(theirs, {})
    (tmp_path / "bare").mkdir()
    clone = Clone(Link(str(theirs), sha), tmp_path / "bare")
    for name, words in (
        ("link.py", "not a regular file"),
        ("large.py", "1048577 bytes"),
        ("d", "not a regular file"),
    ):
        with pytest.raises(CloneError, match=words):
            clone.file(f"assignments/{name}")
    assert clone.file("assignments/none.py") is None


def test_a_repository_cannot_run_anything_here(tmp_path: Path) -> None:
    theirs, witness = tmp_path / "theirs", tmp_path / "witness"
    sha = repository(theirs, {"assignments/a.py": "x"})
    hook = theirs / ".git/hooks/post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {witness}\n")
    hook.chmod(0o755)
    git(theirs, "config", "core.fsmonitor", f"touch {witness}")
    git(theirs, "config", "uploadpack.packObjectsHook", f"touch {witness}")
    (tmp_path / "bare").mkdir()
    assert Clone(Link(str(theirs), sha), tmp_path / "bare").file("assignments/a.py") == b"x"
    assert not witness.exists()


def test_a_cell_is_never_a_formula(tmp_path: Path) -> None:
    rows = [Row("=1+1", "@x", "bad link", "-2")]
    write_gradebook(tmp_path / "gradebook.csv", rows, [])
    (row,) = gradebook(tmp_path / "gradebook.csv").values()
    assert (row["student"], row["link"], row["note"]) == ("'=1+1", "'@x", "'-2")
