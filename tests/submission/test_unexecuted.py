"""No part of a batch unpickles, imports, compiles or executes a student's file.

Only the sandbox does. His files would leave a mark wherever else they ran; and in the processes
of the batch and of its examiner an audit hook notes what is compiled, executed or unpickled.
"""

from __future__ import annotations

import os
import pickle
import site
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader.submission import confinement
from tests.submission.audited import MARK, install
from tests.submission.repositories import git, repository
from tests.submission.test_batch import BESIDE, ROOT, SOLVED, WHERE, gradebook

REASON = confinement.missing()
pytestmark = pytest.mark.skipif(REASON is not None, reason=f"no sandbox here: {REASON}")
PLACES = tuple(
    Path(folder, f"tinyparallel-unexecuted-{os.getpid()}") for folder in ("/tmp", "/dev/shm")
)


def marking(witness: Path) -> str:
    """One line that leaves a mark in every place where it can."""
    spots = [str(place) for place in (witness, *PLACES)]
    return f"import os; [os.system('touch ' + spot + ' 2>/dev/null') for spot in {spots!r}]"


class Marks:
    """Runs that line when it is unpickled."""

    def __init__(self, line: str) -> None:
        self.line = line

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, (self.line,)


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[Path]:
    for place in PLACES:
        place.unlink(missing_ok=True)
    yield tmp_path / "witness"
    for place in PLACES:
        place.unlink(missing_ok=True)


def marks(witness: Path) -> list[Path]:
    """The marks that are there; none is there any more."""
    found = [place for place in (witness, *PLACES) if place.exists()]
    for place in found:
        place.unlink()
    return found


def test_a_mark_would_be_seen(witness: Path, tmp_path: Path) -> None:
    line = marking(witness)
    exec(line)
    assert len(marks(witness)) == 3
    pickle.loads(pickle.dumps(Marks(line)))
    assert len(marks(witness)) == 3
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "theirs.pth").write_text(f"{line}\n")
    site.addsitedir(str(tmp_path / "site"))
    sys.path.remove(str(tmp_path / "site"))
    assert len(marks(witness)) == 3


def test_the_hook_sees_what_is_run_and_unpickled(tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text(f'"""{MARK}"""\nX = 1\n')
    (tmp_path / "imports.py").write_text("import theirs\n")
    (tmp_path / "unpickles.py").write_text(
        f"import pickle\npickle.loads({pickle.dumps(Path('x'))!r})\n"
    )
    (tmp_path / "parses.py").write_text("import ast\nast.parse(open('theirs.py').read())\n")
    seen = {}
    for module in ("imports", "unpickles", "parses"):
        program, log = install(tmp_path)
        log.write_text("")
        subprocess.run([program, "-m", module], cwd=tmp_path, check=True, timeout=60)
        seen[module] = [line.split()[0] for line in log.read_text().splitlines()]
    assert {"started", "compile", "exec"} <= set(seen["imports"])
    assert "pickle.find_class" in seen["unpickles"]
    assert seen["parses"] == ["started"]  # a tree is no code


def test_no_part_of_a_batch_runs_a_students_file(tmp_path: Path, witness: Path) -> None:
    line = marking(witness)
    source = f'{SOLVED}\n\n"{MARK}"\n{line}\n'
    raises = 'def broadcast(*arguments, **named):\n    raise RuntimeError("here it ran")\n'
    files = {
        WHERE: f"{source}\n\n{raises}",
        **BESIDE,
        "assignments/a1_collectives/__init__.py": source,
        "assignments/a1_collectives/given.py": source,
        "assignments/conftest.py": source,
        "conftest.py": source,
        "sitecustomize.py": source,
        "usercustomize.py": source,
        "setup.py": source,
        "theirs.pth": f"{line}\n",
        "assignments/a1_collectives/theirs.pth": f"{line}\n",
        "grader/__init__.py": source,
        "pytest.ini": "[pytest]\naddopts = -p conftest\n",
        "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '-p conftest'\n",
    }
    theirs = tmp_path / "theirs"
    repository(theirs, files)
    for name in ("state.pkl", "assignments/a1_collectives/state.pt", "results.json"):
        (theirs / name).write_bytes(pickle.dumps(Marks(f"{line} # {MARK}")))
    git(theirs, "add", "--all", "--force")
    git(theirs, "commit", "--quiet", "--message", "more")
    sheet = tmp_path / "sheet.csv"
    sheet.write_text(f"student,link\nann,{theirs}/tree/{git(theirs, 'rev-parse', 'HEAD')}")
    program, log = install(tmp_path)
    command = [program, "-m", "grader", "batch", sheet, "a1.broadcast", "--out", tmp_path / "out"]
    done = subprocess.run(
        [*map(str, command), "--allow-local", "--no-throughput", "--jobs", "1"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    row = gradebook(tmp_path / "out/gradebook.csv")["ann"]
    page = "".join(file.read_text() for file in (tmp_path / "out").rglob("*.html"))
    # It was imported and ran, in the sandbox; no mark of it is here, and nobody here ran it.
    assert row["a1.broadcast status"] == "error" and "here it ran" in page
    assert marks(witness) == []
    lines = log.read_text().splitlines()
    assert lines == ["started grader", "started grader.submission.examine"]
