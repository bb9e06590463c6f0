"""Exceptions that no page can hold as they are: they are the solution's faults, with a message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grader.checks.outcomes import FAULT_OF_THE_KIT, Outcome, merge
from grader.checks.results import CheckResult
from grader.fabric import simulate
from grader.harness.errors import DecodeError
from grader.harness.reply import raised_error
from grader.report.files import write_atomically
from grader.submission.choose import Submission
from grader.submission.links import Link
from grader.submission.store import Store
from grader.submission.work import Work, grade
from tests.submission.test_batch import FILE, REASON, ROOT, STUB

HALF = "raise ValueError('half of a letter: \\ud800')"
LONG = "raise type('x' * 17_000_000 * (src == 7), (Exception,), {})('y')"


@pytest.mark.parametrize(
    ("body", "told"), [(HALF, r"half of a letter: \ud800"), (LONG, "characters left out")]
)
def test_they_are_failed_checks_with_their_message(body: str, told: str) -> None:
    text = f"{STUB}\n\ndef broadcast(tensor, src, group=None):\n    {body}\n"
    outcome = grade(
        Work({FILE: text.encode()}, ["a1.broadcast"], str(ROOT), 1, sandboxed=REASON is None)
    )
    assert outcome.status == "graded" and outcome.document is not None
    checks = outcome.document["tasks"][0]["checks"]
    assert {check["status"] for check in checks} <= {"error", "failed"}
    assert not any(FAULT_OF_THE_KIT in check["message"] for check in checks)
    assert any(told in check["message"] for check in checks)
    assert all(len(check["message"]) < 20_000 for check in checks)
    json.dumps(outcome.document, ensure_ascii=False).encode("utf-8")


def test_an_error_is_clipped_where_it_enters() -> None:
    long = "x" * 10_000_000
    described: dict[str, Any] = {
        "type": long, "message": f"\ud800{long}", "traceback": long, "frames": [],
        "bases": [long] * 1000,
    }  # fmt: skip
    error = raised_error(described)
    assert len(error.type) < 300 and len(error.message) < 70_000 and len(error.traceback) < 70_000
    assert len(error.bases) < 100 and all(len(base) < 300 for base in error.bases)
    assert error.message.startswith(r"\ud800x")
    with pytest.raises(DecodeError):
        raised_error(described | {"bases": long})


@pytest.mark.parametrize(
    ("name", "module", "message"),
    [
        ("x" * 17_000_000, "m", "y"),
        ("x\n" * 8_000_000, "m", "y"),
        ("X", "m" * 17_000_000, "y"),
        ("X", "m", "y\n" * 8_000_000),
    ],
)
def test_a_simulated_rank_hands_on_no_more_than_is_kept(
    name: str, module: str, message: str
) -> None:
    kind = type(name, (Exception,), {"__module__": module})

    def program(rank: int, arg: object) -> None:
        raise kind(message)

    result = simulate(program, 2)
    assert len(result.errors) == 2
    for error in result.errors.values():
        assert len(error.type) <= 200 and len(error.message) < 70_000
        assert len(error.traceback) < 70_000 and "raise kind(message)" in error.traceback
    assert len(result.findings[0].message) < 300_000
    assert any("characters left out" in each.traceback for each in result.errors.values())


def test_every_file_can_hold_half_a_letter(tmp_path: Path) -> None:
    result = CheckResult("counts", 1.0)
    merge(result, [Outcome("failed", 0.0, "\ud800", "\udfff", {"warnings": ["\udc80"]})], 0)
    assert (result.message, result.cause) == (r"\ud800", r"\udfff")
    assert result.metrics == {"warnings": [r"\udc80"]}
    write_atomically(tmp_path / "page.html", "half: \ud800")
    assert (tmp_path / "page.html").read_text() == r"half: \ud800"


def test_the_database_can_hold_half_a_letter(tmp_path: Path) -> None:
    store = Store(tmp_path)
    try:
        link = Link("/x\ud800", "main", "ref")
        store.take([Submission("ann", "ann", link, "\ud800", 2, None, {}, ["\ud800"])])
        (row,) = store.rows()
        store.dead(row.id, "\ud800")
        store.fetched(row.id, "0" * 40, {}, ["\ud800"])
        store.graded(
            row.id, state="done", status="error", note="\ud800", seed=1, kit="k", seconds=0.0,
            document={"points": 1, "x": "\ud800"},
        )  # fmt: skip
        (row,) = store.rows()
        assert row.note == row.pasted == r"\ud800" and row.document is not None
    finally:
        store.close()
