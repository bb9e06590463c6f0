"""The same kernels under clang++: the dialect, every fault with its line, full marks."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernels import compilers

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
pytestmark = pytest.mark.skipif(shutil.which("clang++") is None, reason="clang++ is not installed")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env=os.environ | {compilers.ENVIRONMENT: "clang++", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", ["test_dialect.py", "test_faults.py"])
def test_the_simulated_machine(name: str) -> None:
    done = run("pytest", str(HERE / name), "-q", "-p", "no:cacheprovider", "-p", "no:xdist")
    passed = re.search(r"(\d+) passed", done.stdout)
    assert done.returncode == 0 and passed and int(passed[1]) >= 10, done.stdout[-3000:]
    assert "skipped" not in done.stdout


def test_the_reference_earns_all_points_of_kernels(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    whats = ["a2.reduce_add", "a3.adamw", "a5.attention_merge", "a8.moe_permute"]
    options = ["--solution", "reference", "--no-throughput", "--json", str(out)]
    done = run("grader", "check", *whats, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(out.read_text(encoding="utf-8"))
    assert [task["task"] for task in results["tasks"]] == whats
    assert all(task["points"] == task["max_points"] > 0 for task in results["tasks"])
