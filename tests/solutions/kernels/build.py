"""Solutions of kernels: the reference's kernels.cu with some functions in place of its own.

A file begins with `// TASK id`, then either `// PASSES` or `// FAILS name of a check` and `// SAYS
part of its message`. A line that ends in `// HERE` is the one that the message must name. Its
functions may use all that the reference defines.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


@dataclass(frozen=True)
class Solution:
    """check, says: "" for one that passes. line: of `// HERE` in the built file, 0 without."""

    file: Path
    task: str
    check: str
    says: str

    @property
    def assignment(self) -> str:
        """The folder's name."""
        return next((ROOT / "reference").glob(f"{self.task.split('.')[0]}_*")).name


def solutions() -> list[Solution]:
    """All that lie here, by name."""
    return [read(file) for file in sorted(HERE.glob("a*/*.cu"))]


def read(file: Path) -> Solution:
    """The head of a file."""
    text = file.read_text(encoding="utf-8")
    found = dict(re.findall(r"^// (TASK|FAILS|SAYS) (.+)$", text, re.MULTILINE))
    if "FAILS" not in found and "\n// PASSES\n" not in text:
        raise ValueError(f"{file}: neither PASSES nor FAILS")
    return Solution(file, found["TASK"], found.get("FAILS", ""), found.get("SAYS", ""))


def build(solution: Solution, folder: Path) -> int:
    """Write the solution folder with its one kernels.cu; the line of `// HERE`, 0 without."""
    name = solution.assignment
    text = (ROOT / "reference" / name / "kernels.cu").read_text(encoding="utf-8")
    theirs = solution.file.read_text(encoding="utf-8")
    # After the reference's own kernels, before those that are launched.
    at = text.index("// END SOLUTION\n") + len("// END SOLUTION\n")
    head, rest = text[:at], text[at:]
    for function in re.findall(r"^__device__ void (\w+)\(", theirs, re.MULTILINE):
        rest = _call_theirs(rest, function)
    built = f"{head}\nnamespace theirs {{\n{theirs}}}  // namespace theirs\n{rest}"
    target = folder / name / "kernels.cu"
    shutil.rmtree(folder, ignore_errors=True)
    target.parent.mkdir(parents=True)
    # The grader asks for at least one assignment that it knows, which this one may not be yet.
    (folder / "a1_collectives").mkdir()
    target.write_text(built, encoding="utf-8")
    lines = built.splitlines()
    return next((i for i, line in enumerate(lines, 1) if line.endswith("// HERE")), 0)


def _call_theirs(text: str, function: str) -> str:
    """The function that is launched, with its marked body replaced by a call of theirs."""
    match = re.search(
        rf"void {function}\(([^)]*)\) {{\n    // BEGIN SOLUTION\n.*?    // END SOLUTION\n",
        text,
        re.DOTALL,
    )
    if match is None:
        raise ValueError(f"the reference launches no {function}")
    names = re.findall(r"(\w+)\s*(?:,|$)", match[1])
    call = f"void {function}({match[1]}) {{\n    theirs::{function}({', '.join(names)});\n"
    return text[: match.start()] + call + text[match.end() :]
