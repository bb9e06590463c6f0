"""`grader check --sandbox --brokered`: bombs cost their own points; forged records are found."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.grading.conftest import ROOT, append, build

BOMBS = """
import os, sys

def broadcast(tensor, src, group=None):
    while True:
        try:
            os.fork()
        except OSError:
            pass

def scatter(output, inputs, src, group=None):
    hoard = []
    while True:
        hoard.append(b"x" * (64 << 20))

def reduce(tensor, dst, op=dist.ReduceOp.SUM, group=None):
    while True:
        print("x" * 100_000)
"""

#: Sends everything twice, and keeps one of the two out of the record.
FORGED = """
import sys

class _Silent:
    def __init__(self, engine):
        self.engine = engine
    def __getattr__(self, name):
        return getattr(self.engine, name)
    def posted(self, operation, region):
        pass
    def waiting(self, pending, region):
        pass

_tree = broadcast

def broadcast(tensor, src, group=None):
    runtime = sys.modules["grader.fabric.current"].current_runtime()
    engine = runtime.engine
    runtime.engine = _Silent(engine)
    _tree(tensor.clone(), src, group)
    runtime.engine = engine
    _tree(tensor, src, group)
"""

#: Says of every second call that it is the grader's own.
HIDDEN = """
import sys
_tree = broadcast

def broadcast(tensor, src, group=None):
    runtime = sys.modules["grader.fabric.current"].current_runtime()
    runtime.region = False
    _tree(tensor, src, group)
    runtime.region = True
    _tree(tensor, src, group)
"""

#: Knows the brokered world, and does something else there.
TWO_FACED = """
import sys
_tree = broadcast

def broadcast(tensor, src, group=None):
    engine = sys.modules["grader.fabric.current"].current_runtime().engine
    if type(engine).__name__ == "RemoteEngine":
        _tree(tensor.clone(), src, group)
    _tree(tensor, src, group)
"""

VOLUME = "sends no more than a binomial tree"


def graded(folder: Path, *arguments: str) -> dict[str, dict[str, Any]]:
    """What the grader says of the tasks of a folder."""
    out = folder.parent / f"{folder.name}.json"
    run = subprocess.run(
        [
            *(sys.executable, "-m", "grader", "check", *arguments, "--no-throughput"),
            *("--solution", str(folder), "--json", str(out)),
        ],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert run.returncode in (0, 1), run.stdout[-2000:] + run.stderr[-2000:]
    return {task["task"]: task for task in json.loads(out.read_text())["tasks"]}


def check_of(task: dict[str, Any], name: str) -> dict[str, Any]:
    return next(check for check in task["checks"] if name in check["check"])


def test_bombs_cost_their_own_points_and_the_rest_goes_on(usable: None, tmp_path: Path) -> None:
    build(tmp_path / "bombs", append(BOMBS))
    names = ("broadcast", "scatter", "reduce", "barrier")
    tasks = graded(tmp_path / "bombs", *(f"a1.{name}" for name in names), "--sandbox")
    said = {
        name: "\n".join(check["message"] for check in tasks[f"a1.{name}"]["checks"])
        for name in names
    }
    assert "processes at once; the limit is" in said["broadcast"]
    assert "MiB of memory; the limit is" in said["scatter"]
    assert "bytes on stdout and stderr" in said["reduce"]
    assert tasks["a1.barrier"]["status"] == "passed", said["barrier"]
    for name in names[:-1]:
        assert tasks[f"a1.{name}"]["status"] in ("error", "failed")


def test_a_forged_record_holds_only_where_nobody_counts(usable: None, tmp_path: Path) -> None:
    build(tmp_path / "forged", append(FORGED))
    alone = graded(tmp_path / "forged", "a1.broadcast", "--sandbox")["a1.broadcast"]
    assert check_of(alone, VOLUME)["status"] == "passed", alone  # else this cheat proves nothing
    both = graded(tmp_path / "forged", "a1.broadcast", "--sandbox", "--brokered")["a1.broadcast"]
    caught = check_of(both, VOLUME)
    assert caught["status"] == "failed"
    assert caught["points"] == 0
    assert "the worlds disagree" in caught["message"]
    assert "bytes sent" in caught["message"]
    assert "the worlds disagree" in caught["metrics"]["suspicion"]


@pytest.mark.parametrize(
    ("text", "words"), [(HIDDEN, "with all that moved"), (TWO_FACED, "simulated")]
)
def test_what_is_hidden_or_done_in_one_world_only_is_found(
    usable: None, tmp_path: Path, text: str, words: str
) -> None:
    build(tmp_path / "cheat", append(text))
    task = graded(tmp_path / "cheat", "a1.broadcast", "--sandbox", "--brokered")["a1.broadcast"]
    caught = check_of(task, VOLUME)
    assert caught["status"] == "failed"
    assert "the worlds disagree" in caught["message"]
    assert words in caught["message"]


def test_an_honest_solution_is_confirmed(usable: None, tmp_path: Path) -> None:
    honest: Callable[[Path], None] = append("")
    build(tmp_path / "honest", honest)
    tasks = graded(tmp_path / "honest", "a1.broadcast", "a1.barrier", "--sandbox", "--brokered")
    assert {task["status"] for task in tasks.values()} == {"passed"}
    metrics = [check["metrics"] for task in tasks.values() for check in task["checks"]]
    assert sum(each.get("brokered_worlds", 0) for each in metrics) > 3


def test_kernels_are_built_and_launched_in_the_sandbox(usable: None, tmp_path: Path) -> None:
    """With a variable of the file's own and without: what a build leaves differs."""
    for name in ("reference", "own"):
        folder = tmp_path / name
        (folder / "a1_collectives").mkdir(parents=True)
        shutil.copytree(ROOT / "reference" / "a2_ring_all_reduce", folder / "a2_ring_all_reduce")
    file = folder / "a2_ring_all_reduce" / "kernels.cu"
    text = file.read_text(encoding="utf-8")
    begin = "    // BEGIN SOLUTION\n"
    assert text.count(begin) >= 1
    head, _, rest = text.rpartition(begin)
    file.write_text(
        f"__device__ int launches;\n{head}{begin}    atomicAdd(&launches, 1);\n{rest}",
        encoding="utf-8",
    )
    for name in ("reference", "own"):
        task = graded(tmp_path / name, "a2.reduce_add", "--sandbox")["a2.reduce_add"]
        assert task["points"] == task["max_points"] > 0, (name, task)


@pytest.mark.parametrize(
    ("arguments", "path", "words"),
    [
        (("--sandbox",), "/nowhere", "--sandbox: bubblewrap is not installed"),
        (("--brokered",), os.environ["PATH"], "--brokered needs --sandbox"),
        (("--sandbox", "--in-process"), os.environ["PATH"], "not with --sandbox"),
    ],
)
def test_what_cannot_be_done_is_refused(arguments: tuple[str, ...], path: str, words: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "grader", "check", "a1.barrier", *arguments],
        cwd=ROOT,
        env={"PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 2
    assert words in run.stderr
