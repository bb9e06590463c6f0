"""The cheats of `submissions/`, as files of a student's repository.

Each names its TASK; SEEN, an expression that must be found in what is reported of it (messages of
its checks, notes, suspicions); QUICK ones are part of the short tests. NEEDS: "sandbox" or
"brokered", without which it would do harm or earn its points, or "processes": a kernel that
bounds them. BASE: "stub" (what it is appended
to) or "reference". SOURCE stands for the text behind `# BEGIN SUBMISSION`; FILES come beside.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from grader import tasks
from tests.submission.repositories import git, repository

ROOT: Final = Path(__file__).resolve().parents[2]
HERE: Final = Path(__file__).parent / "submissions"
MARK: Final = "# BEGIN SUBMISSION\n"
#: What is graded of each: the tasks that cheats name.
WHATS: Final = ("a1.neighbour_exchange", "a1.broadcast")


@dataclass(frozen=True)
class Cheat:
    """One submission. control: an honest one."""

    name: str
    task: str
    seen: str
    quick: bool
    base: str
    needs: str
    source: str
    files: dict[str, str] = field(default_factory=dict)

    @property
    def control(self) -> bool:
        """Whether it is honest."""
        return self.name.startswith("control_")

    def content(self) -> dict[str, bytes]:
        """All files of its repository."""
        path = tasks.find(self.task).path
        folder = ROOT / ("reference" if self.base == "reference" else "assignments")
        given = {
            f"assignments/{each.path}": (folder / each.path).read_bytes()
            for each in tasks.TASKS
            if each.id.startswith("a1.")
        }
        given[f"assignments/{path}"] += b"\n\n" + self.source.encode("utf-8", "surrogatepass")
        return {**given, **{name: text.encode() for name, text in self.files.items()}}


def load(file: Path) -> Cheat:
    """Read one: its head is ours and evaluated, its body is only text here."""
    head, _, body = file.read_text(encoding="utf-8").partition(MARK)
    values: dict[str, Any] = {}
    for node in ast.parse(head).body:
        if isinstance(node, ast.Assign):
            code = compile(ast.Expression(node.value), str(file), "eval")
            assert isinstance(node.targets[0], ast.Name)
            values[node.targets[0].id] = eval(code)
    return Cheat(
        file.stem,
        values["TASK"],
        values["SEEN"],
        values.get("QUICK", False),
        values.get("BASE", "stub"),
        values.get("NEEDS", ""),
        values.get("SOURCE", body),
        values.get("FILES", {}),
    )


def cheats() -> list[Cheat]:
    """All of them, by name."""
    return [load(file) for file in sorted(HERE.glob("*.py"))]


def hand_in(cheat: Cheat, folder: Path) -> str:
    """Make its repository; a link to its commit."""
    sha = repository(folder, {"NAME": cheat.name})
    for name, content in cheat.content().items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    git(folder, "add", "--all", "--force")
    git(folder, "commit", "--quiet", "--message", "work")
    sha = git(folder, "rev-parse", "HEAD")
    return f"{folder}/tree/{sha}"


def write_sheet(chosen: list[Cheat], folder: Path) -> Path:
    """A sheet of them, each of a student of its name."""
    lines = [
        "student,link",
        *(f"{each.name},{hand_in(each, folder / each.name)}" for each in chosen),
    ]
    sheet = folder / "sheet.csv"
    sheet.write_text("\n".join(lines), encoding="utf-8")
    return sheet
