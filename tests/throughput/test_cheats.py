"""Every known cheat earns no throughput points, and the student reads why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.solutions.grade import ROOT, described
from tests.throughput.grade import cheats


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    out = tmp_path_factory.mktemp("cheats") / "cheats.json"
    run = subprocess.run(
        [sys.executable, "-m", "tests.throughput.grade", str(out)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    results: dict[str, dict[str, Any]] = json.loads(out.read_text(encoding="utf-8"))
    return results


@pytest.mark.parametrize("file", cheats(), ids=lambda file: file.stem)
def test_cheat(file: Path, graded: dict[str, dict[str, Any]]) -> None:
    _, expected = described(file)
    check = graded[file.stem]
    assert check["points"] == 0 < check["max_points"], check
    assert check["status"] == expected["status"], check["message"]
    for words in expected["words"]:
        assert words in check["message"]
