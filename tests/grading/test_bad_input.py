"""Bad input: one clear line and exit 2, or an `error` of the tasks concerned and of no others."""

from __future__ import annotations

import pytest

from tests.grading.conftest import GradeAll, Graded, append, check, remove, replace

BARRIER = ["a1.barrier", "a1.rendezvous"]

#: name: (change, what the message says)
BROKEN = {
    "syntax": (replace("def broadcast(:\n"), "SyntaxError"),
    "import": (replace("import nothing_of_the_kind\n"), "No module named 'nothing_of_the_kind'"),
    "name": (replace("from .point_to_point import not_there\n"), "not_there"),
    "exit": (replace("import sys\nsys.exit(0)\n"), "sys.exit(0) was called"),
    "raises": (replace("raise KeyError('at import')\n"), "at import"),
    "empty": (replace("x = 1\n"), "collectives.py defines no barrier"),
    "kit": (replace("import grader.tasks\n"), "cannot import 'grader.tasks'"),
    "solved": (
        replace("from reference.a1_collectives.collectives import *\n"),
        "cannot import 'reference.a1_collectives.collectives'",
    ),
    "by_name": (
        replace("import importlib\nimportlib.import_module('reference.a1_collectives')\n"),
        "cannot import 'reference",
    ),
    "gone": (remove("collectives.py"), "collectives.py is missing"),
    "nul": (replace("\0\0\0"), "null bytes"),
    "not_utf8": (
        lambda folder: (folder / "a1_collectives" / "collectives.py").write_bytes(b"x = '\xff'\n"),
        "utf-8",
    ),
}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("a1.brodcast",), "a1.broadcast"),
        (("a77",), "a77"),
        (("a1", "--solution", "nowhere"), "no such solution folder"),
        (("a1", "--device", "tpu"), "tpu"),
        (("a1", "--json", "/proc/nowhere/x.json"), "/proc/nowhere"),
    ],
)
def test_what_cannot_be_carried_out_is_one_line_and_exit_2(
    arguments: tuple[str, ...], words: str
) -> None:
    run = check(*arguments)
    assert run.returncode == 2
    assert words in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1, run.stderr


@pytest.fixture(scope="module")
def graded(grade_all: GradeAll) -> dict[str, Graded]:
    return grade_all(
        {name: (change, BARRIER) for name, (change, _) in BROKEN.items()}
        | {
            "prints": (append("print('hello from my module')"), BARRIER),
            "hangs": (append("while True: pass"), BARRIER),
        }
    )


@pytest.mark.parametrize("name", BROKEN)
def test_a_module_that_cannot_be_used_is_an_error_of_its_tasks_only(
    graded: dict[str, Graded], name: str
) -> None:
    result = graded[name]
    assert result.status("a1.barrier") == "error"
    assert result.tasks["a1.barrier"]["points"] == 0
    assert BROKEN[name][1] in result.messages("a1.barrier")
    assert "fault of the kit" not in result.messages("a1.barrier")
    assert result.status("a1.rendezvous") == "passed"


def test_a_module_that_prints_on_import_is_graded(graded: dict[str, Graded]) -> None:
    assert graded["prints"].status("a1.barrier") == "passed"


def test_a_module_that_hangs_on_import_is_a_timeout(graded: dict[str, Graded]) -> None:
    assert graded["hangs"].status("a1.barrier") == "timeout"
    assert "in <module>" in graded["hangs"].messages("a1.barrier")
    assert graded["hangs"].status("a1.rendezvous") == "passed"
