"""`grader release`: assignments/ and the student's repository."""

from __future__ import annotations

import itertools
import os
import subprocess
from pathlib import Path

import pytest

from grader import __version__, release, tasks
from grader.checks.settings import CannotRun
from grader.cli import main
from grader.marks import find_blocks

from .conftest import ROOT
from .test_marks import SOLVED, STUB

FAKE = tasks.Assignment(
    "a9_fake",
    "Fake",
    (
        tasks.Task("a9.ring", 1, "a9_fake.ring", "ring", ""),
        tasks.Task("a9.Layer", 1, "a9_fake.ring", "Layer", ""),
    ),
    "fake_checks",
)


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kit with one assignment, being the current folder."""
    root = tmp_path / "kit"
    files = {
        "reference/__init__.py": "",
        "reference/a9_fake/ring.py": SOLVED,
        "reference/a9_fake/README.md": "# The handout\n",
        "reference/a9_fake/__pycache__/ring.cpython-311.pyc": "junk",
        "reference/a8_not_yet/draft.py": "secret_draft = 'not switched on'\n",
        "grader/tasks.py": "TASKS = ()\n",
        "grader/__pycache__/tasks.pyc": "junk",
        "tests/test_all.py": "def test(): ...\n",
        ".ci/run": "#!/bin/bash\n",
        "Makefile": "grade:\n",
        "pyproject.toml": "",
        "assignments/a9_fake/ring.py": "edited by hand\n",
    }
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    monkeypatch.chdir(root)
    monkeypatch.setattr(tasks, "ASSIGNMENTS", (FAKE,))
    monkeypatch.setattr(tasks, "TASKS", FAKE.tasks)
    return root


def _tree(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text() for path in files}


def test_assignments_are_exactly_what_reference_makes(kit: Path) -> None:
    (kit / "assignments" / "a7_old").mkdir()
    (kit / "assignments" / "a7_old" / "stray.py").write_text("")
    assert main(["release", "--assignments"]) == 0
    assert _tree(kit / "assignments") == {
        "__init__.py": "",
        "a9_fake/ring.py": STUB,
        "a9_fake/README.md": "# The handout\n",
    }
    assert not (kit / "assignments" / "a7_old").exists()
    assert main(["release", "--check"]) == 0


def test_check_names_every_difference(kit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["release", "--assignments"])
    folder = kit / "assignments"
    (folder / "a9_fake" / "README.md").unlink()
    (folder / "a9_fake" / "ring.py").write_text(STUB.replace("size = 4", "size = 5"))
    (folder / "stray.py").write_text("")
    capsys.readouterr()
    assert main(["release", "--check"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "missing: assignments/a9_fake/README.md",
        "differs: assignments/a9_fake/ring.py:8",
        "not made from reference/: assignments/stray.py",
    ]


def test_wrong_marks_leave_everything_as_it_was(
    kit: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (kit / "reference" / "a9_fake" / "ring.py").write_text(SOLVED + "# END SOLUTION\n")
    before = _tree(kit / "assignments")
    assert main(["release", "--assignments"]) == 2
    line = len(SOLVED.splitlines()) + 1
    assert f"reference/a9_fake/ring.py:{line}: " in capsys.readouterr().err
    assert _tree(kit / "assignments") == before
    assert main(["release", str(kit.parent / "student")]) == 2
    assert not (kit.parent / "student").exists()


def test_task_without_marks_is_refused(kit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (kit / "reference" / "a9_fake" / "ring.py").write_text("def ring(tensor):\n    return tensor\n")
    assert main(["release", "--check"]) == 2
    assert "a9.ring has no marked solution" in capsys.readouterr().err


def test_release_holds_what_a_student_needs_and_no_answer(kit: Path) -> None:
    student = kit.parent / "student"
    student.mkdir()  # an empty folder is fine
    assert main(["release", str(student)]) == 0
    tree = _tree(student)
    assert set(tree) == {
        *("Makefile", "pyproject.toml", "VERSION", "grader/tasks.py"),
        *("assignments/__init__.py", "assignments/a9_fake/ring.py"),
        "assignments/a9_fake/README.md",
    }
    assert tree["VERSION"] == f"tinyparallel {__version__}\ncommit unknown\n"
    assert tree["assignments/a9_fake/ring.py"] == STUB  # not the one edited by hand
    text = "".join(tree.values())
    for word in ("trick", "the answer", "secret_draft", "SOLUTION"):
        assert word not in text
    leftovers = [path for path in kit.parent.iterdir() if path.name.startswith(".")]
    assert leftovers == []


def test_release_records_the_commit(kit: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(kit)]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "kit"]):
        subprocess.run([*git, *command], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    sha = head.stdout.strip()
    release.write_release(kit, kit.parent / "clean")
    assert f"commit {sha}\n" in (kit.parent / "clean" / "VERSION").read_text()
    (kit / "Makefile").write_text("changed:\n")
    release.write_release(kit, kit.parent / "dirty")
    assert f"commit {sha} with local changes\n" in (kit.parent / "dirty" / "VERSION").read_text()


def test_release_never_writes_over_anything(kit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full = kit.parent / "full"
    full.mkdir()
    (full / "work.py").write_text("mine\n")
    for dest in (full, full / "work.py"):
        assert main(["release", str(dest)]) == 2
    assert _tree(full) == {"work.py": "mine\n"}
    assert main(["release"]) == 2
    assert main(["release", "--check", "--assignments"]) == 2
    assert capsys.readouterr().err.count("\n") == 4


def test_links_in_the_reference_are_refused(kit: Path) -> None:
    os.symlink("/etc/hosts", kit / "reference" / "a9_fake" / "hosts")
    with pytest.raises(CannotRun, match="is a link"):
        release.stubs(kit / "reference")


def test_this_kits_assignments_are_what_its_reference_makes() -> None:
    assert release.differences(ROOT / "reference", ROOT / "assignments") == []


def test_this_kits_release_holds_no_marked_line(tmp_path: Path) -> None:
    """No line of a solution that is long enough to tell something, unless it also stands outside
    the marks (in a given module, a docstring); and in the rest of the kit no two in a row."""
    release.write_release(ROOT, tmp_path / "student")
    tree = {path: path.read_text() for path in (tmp_path / "student").rglob("*") if path.is_file()}
    marked: list[list[str]] = []
    given: set[str] = set()
    for assignment in tasks.ASSIGNMENTS:
        for path in sorted((ROOT / "reference" / assignment.name).rglob("*.py")):
            lines = [line.strip() for line in path.read_text().splitlines()]
            inside: set[int] = set()
            for block in find_blocks(path.read_text(), path.name):
                marked.append(lines[block.begin : block.end - 1])
                inside |= set(range(block.begin - 1, block.end))
            given |= {line for number, line in enumerate(lines) if number not in inside}
    telling = {line for block in marked for line in block if len(line) > 20} - given
    assert len(telling) > 50
    pairs = {pair for block in marked for pair in itertools.pairwise(block)}
    imports = ("import ", "from ")
    pairs = {
        pair
        for pair in pairs
        if min(map(len, pair)) > 20
        and not set(pair) <= given
        and not all(line.startswith(imports) for line in pair)
    }
    for path, text in tree.items():
        lines = [line.strip() for line in text.splitlines()]
        if "assignments" in path.relative_to(tmp_path).parts:
            assert not telling & set(lines), path
        assert not pairs & set(itertools.pairwise(lines)), path


def test_the_released_readme_names_only_what_a_student_has(tmp_path: Path) -> None:
    release.write_release(ROOT, tmp_path / "student")
    for name in ("README.md", "README.zh-CN.md"):
        text = (tmp_path / "student" / name).read_text()
        assert "make grade" in text and "grader check a1.broadcast" in text
        for absent in ("grader release", "SOLUTION=reference", ".ci/run", "tests/", "KIT -->"):
            assert absent not in text, (name, absent)
            assert absent in (ROOT / name).read_text(), (name, absent)
