"""A small project with checks of every fate, to run the real command on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

CHECKS = """
import os
import signal
import pytest
from grader.checks.framework import CheckFailed, SolutionError, SolutionTimeout, Unimplemented
from grader.checks.framework import check


@check("f.whole", points=6, name="adds up")
@pytest.mark.parametrize("size", [1, 2, 3])
def test_whole(size, metrics):
    metrics["bytes_per_rank"] = 100 * size


@check("f.whole", points=4, name="is also quick")
def test_whole_quick(award):
    award(1.0)


@check("f.part", points=4, name="gives the sum")
def test_part():
    pass


@check("f.part", points=6, name="moves little")
@pytest.mark.parametrize("size", [1, 2, 3])
def test_part_volume(size, metrics):
    metrics["sent"] = size
    if size == 2:
        raise CheckFailed("rank 2 sent 96 bytes, expected 48", cause="it sends everything",
                          metrics={"limit": 48})


@check("f.wrong", points=10, name="gives the sum")
def test_wrong():
    raise CheckFailed("rank 1, elements [4:8]: expected 1, got 2")


@check("f.plain_assert", points=10, name="counts")
def test_plain_assert():
    got = 3
    assert got == 4


@check("f.stub", points=10, name="gives the sum")
def test_stub():
    raise Unimplemented()


@check("f.raises", points=10, name="gives the sum")
def test_raises():
    raise SolutionError("rank 0 raised ZeroDivisionError" + " and so on" * 40 + " at ring.py:12")


@check("f.slow", points=7, name="ends")
def test_slow():
    raise SolutionTimeout("did not end within 10 s")


@check("f.slow", points=3, name="gives the sum")
def test_slow_sum():
    raise CheckFailed("no value")


@check("f.gpu", points=10, name="runs on a GPU")
def test_gpu():
    pytest.skip("no GPU here")


@check("f.half", points=8, name="is fast")
def test_half(award, metrics):
    metrics["ratio"] = float("nan")
    award(0.25, "ratio 0.4, full marks from 0.7")


@check("f.kit", points=10, name="has a bug")
def test_kit():
    raise KeyError("the kit's own mistake")


@pytest.fixture
def broken():
    yield
    raise RuntimeError("teardown went wrong")


@check("f.teardown", points=10, name="ends well")
def test_teardown(broken):
    pass


@check("f.killer", points=10, name="kills")
def test_killer():
    os.kill(os.getpid(), getattr(signal, os.environ["KILL_WITH"]))
    os.read(os.pipe()[0], 1)  # a signal that raises interrupts this
"""

FATES = [
    *("whole", "part", "wrong", "plain_assert", "stub", "raises", "slow", "gpu", "half"),
    *("kit", "teardown", "unchecked", "killer"),
]

DRIVER = """
import sys
sys.path.insert(0, {checks!r})
from grader import tasks
rows = [("f", name, 8 if name == "half" else 10, name) for name in {fates!r}]
table = tuple(tasks.Task("f." + n, p, "f_fates." + m, n, t) for m, n, p, t in rows)
fake = tasks.Assignment("f_fates", "All fates", table, "fake_checks")
tasks.ASSIGNMENTS, tasks.TASKS = (fake,), table
from grader.cli import main
code = main(sys.argv[1:])
if "--modules" in {extra!r}:
    print(sorted(sys.modules))
sys.exit(code)
"""


@dataclass
class Run:
    """What a command left."""

    code: int
    out: str
    err: str


class Project:
    """A project folder whose tasks are the fates of `CHECKS`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for tree in ("assignments", "reference"):
            (folder / tree / "f_fates").mkdir(parents=True)
            (folder / tree / "f_fates" / "f.py").write_text("x = 1\n")
        (folder / "checks").mkdir()
        (folder / "checks" / "fake_checks.py").write_text(textwrap.dedent(CHECKS))

    def grader(self, *arguments: str, extra: str = "", **environment: str) -> Run:
        """Run `grader ARGUMENTS` here, in a process of its own."""
        driver = DRIVER.format(checks=str(self.folder / "checks"), fates=FATES, extra=extra)
        run = subprocess.run(
            [sys.executable, "-c", driver, *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120", **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            # A job in the background of a shell is started with Ctrl-C ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        return Run(run.returncode, run.stdout, run.stderr)

    def check(self, *arguments: str, **environment: str) -> Run:
        """Run `grader check --in-process ARGUMENTS`: no worker server for checks that need none."""
        return self.grader("check", "--in-process", "--device", "cpu", *arguments, **environment)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """One project for the tests of a module."""
    return Project(tmp_path_factory.mktemp("project"))
