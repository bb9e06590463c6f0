"""From local repositories to a gradebook, with real examiners, sandboxed where it can be."""

from __future__ import annotations

import csv
import dataclasses
import os
import pathlib
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from grader import tasks
from grader.harness import processes
from grader.submission import confinement
from grader.submission.batch import BatchOptions, run_batch
from grader.submission.executors import SubmititExecutor
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
sandboxed = pytest.mark.skipif(REASON is not None, reason=f"no sandbox here: {REASON}")


def instead(body: str) -> str:
    return f"{SOLVED}\n\ndef broadcast(tensor, src, group=None):\n    {body}\n"


#: Leaves a file behind wherever somebody imports, executes, unpickles or compiles it.
def drops(witness: Path) -> str:
    return f"""{SOLVED}

import pathlib
for _spot in ({str(witness)!r}, "/tmp/tinyparallel-witness", "/dev/shm/tinyparallel-witness"):
    try:
        pathlib.Path(_spot).write_text("ran")
    except OSError:
        pass
"""


def gradebook(path: Path) -> dict[str, dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return {row["student"]: row for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    folder = tmp_path_factory.mktemp("batch")
    contents = {
        "right": SOLVED,
        "stub": STUB,
        "syntax": "def broadcast(:",
        "hang": instead("while True: pass"),
        "crash": instead("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"),
    }
    lines = ["student,link"]
    for name, content in contents.items():
        sha = repository(folder / name, {WHERE: content, **BESIDE})
        lines.append(f"{name},{folder / name}/tree/{sha}")
    sheet = folder / "sheet.csv"
    sheet.write_text("\n".join(lines), encoding="utf-8")
    run_batch(sheet, ["a1.broadcast"], folder / "out", TOLD, lambda line: None)
    return gradebook(folder / "out" / "gradebook.csv")


@pytest.mark.parametrize(
    ("student", "task_status"),
    [
        ("right", "passed"),
        ("stub", "unimplemented"),
        ("syntax", "error"),
        ("hang", "timeout"),
        ("crash", "error"),
    ],
)
def test_submission(graded: dict[str, dict[str, str]], student: str, task_status: str) -> None:
    row = graded[student]
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


@sandboxed
def test_no_part_of_a_batch_runs_a_students_file_outside_the_sandbox(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    places = [witness, Path("/tmp/tinyparallel-witness"), Path("/dev/shm/tinyparallel-witness")]
    source = drops(witness)
    # First that it would be seen: run here, the file leaves its mark.
    exec(source.partition("\nimport pathlib\n")[2], {"pathlib": pathlib})
    assert witness.exists()
    for place in places:
        place.unlink(missing_ok=True)
    files = {
        WHERE: source,
        **BESIDE,
        "assignments/a1_collectives/__init__.py": source,
        "assignments/a1_collectives/given.py": source,
        "assignments/conftest.py": source,
        "conftest.py": source,
        "sitecustomize.py": source,
        "setup.py": source,
        "grader/__init__.py": source,
        "pytest.ini": "[pytest]\naddopts = -p conftest\n",
        "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '-p conftest'\n",
    }
    sha = repository(tmp_path / "theirs", files)
    sheet = tmp_path / "sheet.csv"
    sheet.write_text(f"student,link\nann,{tmp_path}/theirs/tree/{sha}", encoding="utf-8")
    run_batch(sheet, ["a1.barrier"], tmp_path / "out", TOLD, lambda line: None)
    row = gradebook(tmp_path / "out/gradebook.csv")["ann"]
    # It was imported, in the sandbox: it is graded, and no mark is left here.
    assert row["a1.barrier status"] == "passed"
    assert [place for place in places if place.exists()] == []


def test_nothing_that_students_wrote_is_ever_unpickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise AssertionError("something was unpickled")

    monkeypatch.setattr(pickle, "loads", refuse)
    monkeypatch.setattr(pickle, "load", refuse)
    monkeypatch.setattr(pickle, "Unpickler", refuse)
    assert grade(work(SOLVED)).status == "graded"


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
        "grade(work(SOLVED + '\\nimport time\\ntime.sleep(3600)\\n', seconds=3600.0))\n"
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


@pytest.mark.parametrize("content", [SOLVED, instead("raise RuntimeError")], ids=["right", "wrong"])
def test_the_same_submission_twice_gets_the_same_grade(content: str) -> None:
    first, second = (grade(work(content, tasks=("a1.broadcast",))) for _ in range(2))
    assert first.document is not None and second.document is not None
    for document in (first.document, second.document):
        for task in [document, *document["tasks"]]:
            del task["seconds"]
    assert first.document == second.document
    assert first.document["solution"] == "assignments"


def test_the_examiner_sees_no_secret_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "secret-of-the-teacher")
    looks = """
import os, pathlib
text = os.environ.get("GITHUB_TOKEN", "")
for _spot in pathlib.Path("/proc").glob("[0-9]*/environ"):
    try:
        text += _spot.read_bytes().decode(errors="replace")
    except OSError:
        pass
_HONEST = barrier
def barrier(group=None):
    if "secret-of-the-" + "teacher" in text:
        raise RuntimeError("found it")
    return _HONEST(group)
"""
    outcome = grade(work(SOLVED + looks))
    assert outcome.document is not None and outcome.document["tasks"][0]["status"] == "passed"


def test_an_executor_of_a_cluster_grades_the_same(tmp_path: Path) -> None:
    pytest.importorskip("submitit", reason="submitit is not installed")
    executor = SubmititExecutor(tmp_path / "jobs", 1, "local", 300.0)
    try:
        handle = executor.submit(work(SOLVED))
        deadline = time.monotonic() + 300
        while not handle.done() and time.monotonic() < deadline:
            time.sleep(0.1)
        outcome = handle.result()
    finally:
        executor.close()
    assert outcome.status == "graded" and outcome.document is not None
    assert outcome.document["tasks"][0]["status"] == "passed"


def test_the_wall_limit_follows_from_the_tasks() -> None:
    assert default_seconds(["a"] * 12) > default_seconds(["a"]) > 60
