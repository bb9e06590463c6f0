"""`grader bench`: sizes as people write them, the table, and its JSON."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grader.checks import workers
from grader.checks.settings import CannotRun
from grader.report.bench import parse_sizes, run_bench

ROOT = Path(__file__).resolve().parents[2]
TASK = "a2.ring_all_reduce"


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    workers.start()
    yield
    workers.stop()


def test_sizes() -> None:
    assert parse_sizes("64K, 1M,16MiB,2g,400") == [65536, 1 << 20, 16 << 20, 2 << 30, 400]


@pytest.mark.parametrize("text", ["", "1X", "-4K", "0", "1M,,2M", "1.5M", "6", "²"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(CannotRun, match="--sizes"):
        parse_sizes(text)


def bench(folder: Path, json_file: Path, whats: list[str] | None = None) -> tuple[int, str]:
    out = io.StringIO()
    status = run_bench(
        whats or [TASK], folder, "mine",
        ranks=2, sizes=[4096, 65536], device="cpu", json_file=json_file, out=out,
    )  # fmt: skip
    return status, out.getvalue()


def test_the_reference_beside_the_library(tmp_path: Path) -> None:
    status, text = bench(ROOT / "reference", tmp_path / "bench.json")
    assert status == 0
    document: dict[str, Any] = json.loads((tmp_path / "bench.json").read_text())
    assert (document["format"], document["ranks"], document["device"]) == (1, 2, "cpu")
    rows = document["rows"]
    assert [(row["who"], row["nbytes"], row["wrong"]) for row in rows] == [
        ("reference", 4096, 0),
        ("gloo", 4096, 0),
        ("reference", 65536, 0),
        ("gloo", 65536, 0),
    ]
    for row in rows:
        assert row["algbw"] == pytest.approx(row["nbytes"] / row["seconds"])
        assert row["busbw"] == pytest.approx(row["algbw"])  # 2 (p - 1) / p with two ranks
        assert row["count"] == row["nbytes"] // 4
    assert all(word in text for word in ("algbw", "busbw", "#wrong", "reference", "gloo", TASK))


@pytest.mark.parametrize(
    ("body", "note", "wrong"),
    [
        ('raise NotImplementedError("a2.ring_all_reduce")', "not implemented yet", False),
        ("return None", "", True),
    ],
)
def test_a_student_who_is_not_there_yet(tmp_path: Path, body: str, note: str, wrong: bool) -> None:
    folder = tmp_path / "assignments" / "a2_ring_all_reduce"
    shutil.copytree(ROOT / "reference" / "a2_ring_all_reduce", folder)
    text = (folder / "ring.py").read_text(encoding="utf-8")
    (folder / "ring.py").write_text(
        f"{text}\n\ndef ring_all_reduce(tensor, op=None, group=None):\n    {body}\n"
    )
    status, text = bench(folder.parent, tmp_path / "bench.json")
    assert status == 1
    rows = json.loads((tmp_path / "bench.json").read_text())["rows"]
    assert [row["who"] for row in rows[:3]] == ["student", "reference", "gloo"]
    student, *others = rows[:3]
    assert note in student["note"] and (student["wrong"] > 0) == wrong
    assert (student["seconds"] is None) == bool(note)
    assert all(other["wrong"] == 0 and other["seconds"] > 0 for other in others)


def test_a_task_that_cannot_be_timed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match=r"nothing to measure in a1\.broadcast"):
        bench(ROOT / "reference", tmp_path / "bench.json", ["a1.broadcast"])
