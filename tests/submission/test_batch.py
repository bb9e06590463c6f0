"""From local repositories to a gradebook, with real examiners, sandboxed where it can be."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from grader import tasks
from grader.harness import processes
from grader.submission import confinement
from grader.submission.batch import BatchOptions, run_batch
from grader.submission.executors import SubmititExecutor
from grader.submission.store import Store
from grader.submission.work import Work, default_seconds, grade
from tests.submission.repositories import repository

ROOT = Path(__file__).resolve().parents[2]
FILE = "a1_collectives/collectives.py"
WHERE = f"assignments/{FILE}"
SOLVED = (ROOT / "reference" / FILE).read_text(encoding="utf-8")
BESIDE = {  # of another task, which the solved file builds on
    "assignments/a1_collectives/point_to_point.py": (
        ROOT / "reference/a1_collectives/point_to_point.py"
    ).read_text(encoding="utf-8")
}
STUB = (ROOT / WHERE).read_text(encoding="utf-8")
REASON = confinement.missing()
TOLD = BatchOptions(
    throughput=False, allow_local=True, jobs=2, seed=3, unsandboxed=REASON is not None
)


def instead(body: str) -> str:
    return f"{SOLVED}\n\ndef broadcast(tensor, src, group=None):\n    {body}\n"


#: Says whether it sees what only the batch may know.
LOOKS = f"""{SOLVED}

import os, pathlib

def broadcast(tensor, src, group=None):
    text = os.environ.get("GITHUB_TOKEN", "")
    for spot in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            text += spot.read_bytes().decode(errors="replace")
        except OSError:
            pass
    raise RuntimeError("found it" if "secret-of-the-" + "teacher" in text else "found nothing")
"""
CONTENTS = {
    "right": SOLVED,
    "stub": STUB,
    "syntax": "def broadcast(:",
    "hang": instead("while True: pass"),
    "crash": instead("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"),
    "wrong": instead("raise RuntimeError"),
    "looks": LOOKS,
}


def gradebook(path: Path) -> dict[str, dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return {row["student"]: row for row in csv.DictReader(file)}


@dataclass
class Graded:
    """What one batch made of `CONTENTS`."""

    book: dict[str, dict[str, str]]
    documents: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Graded:
    folder = tmp_path_factory.mktemp("batch")
    lines = ["student,link"]
    for name, content in CONTENTS.items():
        sha = repository(folder / name, {WHERE: content, **BESIDE})
        lines.append(f"{name},{folder / name}/tree/{sha}")
    sheet = folder / "sheet.csv"
    sheet.write_text("\n".join(lines), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GITHUB_TOKEN", "secret-of-the-teacher")
        run_batch(sheet, ["a1.broadcast"], folder / "out", TOLD, lambda line: None)
    store = Store(folder / "out")
    documents = {row.student: row.document or {} for row in store.rows()}
    store.close()
    return Graded(gradebook(folder / "out" / "gradebook.csv"), documents)


@pytest.mark.parametrize(
    ("student", "task_status"),
    [
        ("right", "passed"),
        ("stub", "unimplemented"),
        ("syntax", "error"),
        ("hang", "timeout"),
        ("crash", "error"),
        ("wrong", "error"),
    ],
)
def test_submission(graded: Graded, student: str, task_status: str) -> None:
    row = graded.book[student]
    assert (row["status"], row["a1.broadcast status"]) == ("graded", task_status), row
    full = task_status == "passed"
    assert (float(row["points"]) == tasks.find("a1.broadcast").points) == full
    assert (float(row["points"]) == 0.0) == (not full)
    assert row["max_points"] == f"{tasks.find('a1.broadcast').points:g}"


def work(content: str, **more: object) -> Work:
    files = {FILE: content.encode()}
    files |= {name.removeprefix("assignments/"): text.encode() for name, text in BESIDE.items()}
    base = Work(
        files=files, tasks=("a1.barrier",), project=str(ROOT), seed=3,
        sandboxed=not TOLD.unsandboxed,
    )  # fmt: skip
    return dataclasses.replace(base, **more)  # type: ignore[arg-type]


def timeless(document: dict[str, Any] | None) -> dict[str, Any]:
    """A copy without what differs between runs of the same."""
    assert document is not None
    copied: dict[str, Any] = json.loads(json.dumps(document))
    for part in [copied, *copied["tasks"]]:
        del part["seconds"]
    return copied


def test_a_submission_that_takes_too_long_is_stopped_and_nothing_of_it_is_left() -> None:
    before = set(processes.children(os.getpid()))
    slow = f"{SOLVED}\nimport time\ntime.sleep(3600)\n"
    begin = time.monotonic()
    outcome = grade(work(slow, seconds=8.0, tasks=("a1.barrier", "a1.broadcast")))
    assert time.monotonic() - begin < 60
    assert outcome.status == "timeout" and "not graded within 8 seconds" in outcome.note
    # What was known by then is kept: every check is there, and none is earned.
    if outcome.document is not None:
        assert outcome.document["points"] == 0.0 < outcome.document["max_points"]
    time.sleep(0.5)
    assert set(processes.children(os.getpid())) - before == set()


def test_an_examiner_ends_with_its_batch(tmp_path: Path) -> None:
    script = tmp_path / "batch.py"
    script.write_text(
        "import pathlib\n"
        "from tests.submission.test_batch import SOLVED, work, grade\n"
        "slow = SOLVED + '\\nimport time\\ntime.sleep(3600)\\n'\n"
        f"grade(work(slow, seconds=3600.0, scratch={str(tmp_path)!r}))\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, str(script)], cwd=ROOT, env=environment)
    deadline = time.monotonic() + 60
    family: list[int] = []
    while len(family) < 3 and time.monotonic() < deadline:
        family = processes.tree(process.pid)
        time.sleep(0.05)
    assert len(family) >= 3
    process.kill()
    process.wait()
    while time.monotonic() < deadline and any(_runs(pid) for pid in family):
        time.sleep(0.1)
    assert [pid for pid in family if _runs(pid)] == []


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state != b"Z"


def test_a_batch_that_is_interrupted_kills_its_examiners() -> None:
    stopped = threading.Event()
    threading.Timer(2.0, stopped.set).start()
    with pytest.raises(KeyboardInterrupt):
        grade(work(f"{SOLVED}\nimport time\ntime.sleep(3600)\n"), stopped)


def test_the_same_submission_twice_gets_the_same_grade(graded: Graded) -> None:
    again = grade(work(CONTENTS["right"], tasks=("a1.broadcast",)))
    assert timeless(again.document) == timeless(graded.documents["right"])
    assert again.document is not None and again.document["solution"] == "assignments"


def test_the_examiner_sees_no_secret_of_the_environment(graded: Graded) -> None:
    message = graded.documents["looks"]["tasks"][0]["checks"][0]["message"]
    assert "RuntimeError: found nothing" in message


def test_an_executor_of_a_cluster_grades_the_same(graded: Graded, tmp_path: Path) -> None:
    pytest.importorskip("submitit", reason="submitit is not installed")
    executor = SubmititExecutor(tmp_path / "jobs", 1, "local", 300.0)
    try:
        handle = executor.submit(work(CONTENTS["wrong"], tasks=("a1.broadcast",)))
        deadline = time.monotonic() + 300
        while not handle.done() and time.monotonic() < deadline:
            time.sleep(0.1)
        outcome = handle.result()
    finally:
        executor.close()
    assert outcome.status == "graded"
    assert timeless(outcome.document) == timeless(graded.documents["wrong"])


def test_the_wall_limit_follows_from_the_tasks() -> None:
    assert default_seconds(["a"] * 12) > default_seconds(["a"]) > 60
