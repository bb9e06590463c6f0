"""Code that dies, leaves, hangs, floods: a result to report, and the next task is graded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.grading.conftest import ROOT, GradeAll, Graded, append, check, replace

FAULTS = """
import ctypes, os, sys


def broadcast(tensor, src, group=None):
    ctypes.string_at(0)


def scatter(output, inputs, src, group=None):
    os._exit(0)


def gather(tensor, outputs, dst, group=None):
    while True:
        pass


def reduce(tensor, dst, op=dist.ReduceOp.SUM, group=None):
    ctypes.CDLL(None).pause()


def all_gather(outputs, tensor, group=None):
    while True:
        print("x" * 100_000)


def reduce_scatter(output, inputs, op=dist.ReduceOp.SUM, group=None):
    hoard = []
    while True:
        hoard.append(torch.ones(1 << 24))


def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None):
    sys.exit(0)


def all_reduce_pairwise(tensor, op=dist.ReduceOp.SUM, group=None):
    if os.fork() == 0:
        os.setsid()
        while True:
            pass
    os._exit(3)
"""


LOOP = "def barrier(group=None):\n    while True:\n        pass"

#: Globals, files and environment end with the worker, and each rank has its own global.
REMEMBERS = """
import os, pathlib
_calls = []
_barrier = barrier
def barrier(group=None):
    _calls.append(1)
    assert len(_calls) < 20 and "SEEN" not in os.environ and not pathlib.Path("seen").exists()
    result = _barrier(group)
    if len(_calls) == 19:
        os.environ["SEEN"] = "1"
        pathlib.Path("seen").touch()
    return result
"""

CALLS_A_STUB = """
def reduce(tensor, dst, op=dist.ReduceOp.SUM, group=None):
    raise NotImplementedError("a1.reduce")
def all_reduce_pairwise(tensor, op=dist.ReduceOp.SUM, group=None):
    reduce(tensor, 0, op, group)
"""

HALF_FILLED = """
def barrier(group=None):
    if dist.get_world_size(group) > 1:
        raise NotImplementedError
"""

#: Writes down the command line of every process it runs in.
SPY = """
import os, pathlib
def _note(what):
    command = pathlib.Path("/proc/self/cmdline").read_text().replace(chr(0), " ")
    pathlib.Path({diary!r}, f"{{os.getpid()}}-{{what}}").write_text(command)
_note("import")
_barrier = barrier
def barrier(group=None):
    _note("call")
    return _barrier(group)
"""

EVERYTHING = [
    "a1.rendezvous", "a1.neighbour_exchange", "a1.broadcast", "a1.scatter", "a1.gather",
    "a1.reduce", "a1.all_gather", "a1.reduce_scatter", "a1.all_to_all_single", "a1.barrier",
    "a1.all_reduce_pairwise", "a1.all_reduce_parameter_server",
]  # fmt: skip


@pytest.fixture(scope="module")
def diary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("diary")


@pytest.fixture(scope="module")
def graded(grade_all: GradeAll, diary: Path) -> dict[str, Graded]:
    stub = ROOT / "assignments" / "a1_collectives" / "collectives.py"
    return grade_all(
        {
            "faults": (append(FAULTS), EVERYTHING),
            "loop": (append(LOOP), ["a1.barrier"]),
            "remembers": (append(REMEMBERS), ["a1.barrier"]),
            "stub": (replace(stub.read_text()), ["a1.broadcast", "a1.barrier", "a1.rendezvous"]),
            "half_filled": (append(HALF_FILLED), ["a1.barrier"]),
            "calls_a_stub": (append(CALLS_A_STUB), ["a1.all_reduce_pairwise"]),
            "spy": (append(SPY.format(diary=str(diary))), ["a1.barrier"]),
        }
    )


@pytest.mark.parametrize(
    ("task", "status", "words"),
    [
        ("broadcast", "error", "SIGSEGV"),
        ("scatter", "error", "left with os._exit"),
        ("gather", "timeout", "without communicating"),
        ("reduce", "timeout", "did not end"),
        ("all_gather", "error", "more than 1048576 bytes on stdout"),
        ("reduce_scatter", "error", "memory"),
        ("all_to_all_single", "error", "sys.exit(0) was called"),
        ("all_reduce_pairwise", "error", "exit"),
    ],
)
def test_a_way_to_die_is_a_result(
    graded: dict[str, Graded], task: str, status: str, words: str
) -> None:
    result = graded["faults"]
    assert result.status(f"a1.{task}") == status, result.messages(f"a1.{task}")
    assert result.tasks[f"a1.{task}"]["points"] == 0
    assert words in result.messages(f"a1.{task}")


@pytest.mark.parametrize(
    "task", ["rendezvous", "neighbour_exchange", "barrier", "all_reduce_parameter_server"]
)
def test_the_tasks_beside_them_are_graded(graded: dict[str, Graded], task: str) -> None:
    assert graded["faults"].status(f"a1.{task}") == "passed"


def test_no_process_is_left_behind(graded: dict[str, Graded]) -> None:
    left = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if "tinyparallel-" in os.readlink(process / "cwd") and _marked(process, graded):
                left.append(process.name)
        except OSError:
            continue
    assert not left


def _marked(process: Path, graded: dict[str, Graded]) -> bool:
    """Whether it belongs to the run above: its parent has gone, so init has adopted it."""
    status = (process / "stat").read_text().rsplit(")", 1)[1].split()
    return int(status[1]) == 1 and bool(graded)


def test_a_task_that_did_not_end_once_is_not_waited_for_again(graded: dict[str, Graded]) -> None:
    assert graded["loop"].status("a1.barrier") == "timeout"
    assert "not run: a1.barrier did not end" in graded["loop"].messages("a1.barrier")


def test_nothing_of_a_call_is_seen_by_the_next(graded: dict[str, Graded]) -> None:
    result = graded["remembers"]
    assert result.status("a1.barrier") == "passed", result.messages("a1.barrier")


def test_an_untouched_stub_is_unimplemented_and_scores_nothing(graded: dict[str, Graded]) -> None:
    result = graded["stub"]
    for task in ("a1.broadcast", "a1.barrier"):
        assert result.status(task) == "unimplemented"
        assert result.tasks[task]["points"] == 0
        assert f"{task} is not implemented yet" in result.messages(task)
    assert result.status("a1.rendezvous") == "passed"


def test_calling_a_task_that_is_still_a_stub_says_which(graded: dict[str, Graded]) -> None:
    result = graded["calls_a_stub"]
    assert result.status("a1.all_reduce_pairwise") == "unimplemented"
    assert "calls a1.reduce" in result.messages("a1.all_reduce_pairwise")


def test_student_code_runs_in_workers_only(
    graded: dict[str, Graded], diary: Path, tmp_path: Path
) -> None:
    assert graded["spy"].status("a1.barrier") == "passed"
    notes = list(diary.iterdir())
    assert {note.name.split("-")[1] for note in notes} == {"import", "call"}
    assert all("grader.harness.server" in note.read_text() for note in notes)
    # With --in-process it does run in the examiner, so the spy can tell.
    from tests.grading.conftest import build

    other = tmp_path / "diary"
    other.mkdir()
    build(tmp_path / "work", append(SPY.format(diary=str(other))))
    run = check("a1.barrier", "--solution", str(tmp_path / "work"), "--in-process")
    assert run.returncode == 0, run.stdout
    assert any("grader check" in note.read_text() for note in other.iterdir())


def test_a_bare_not_implemented_error_is_no_error(graded: dict[str, Graded]) -> None:
    (barrier,) = graded["half_filled"].tasks.values()
    assert barrier["status"] == "unimplemented", barrier
    messages = [check["message"] for check in barrier["checks"]]
    assert any("a1.barrier is not implemented yet (collectives.py:" in text for text in messages)
