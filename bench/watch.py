"""From saving an edit to the verdict: `grader check a2.ring_all_reduce --watch`, median of edits.

The folder under test is the reference; an edit changes a comment of `ring.py`, the file of the
task. A wrong edit (every chunk is added to itself) is timed as well, up to the first failure.
"""

from __future__ import annotations

import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[1]
TASK = "a2.ring_all_reduce"
EDITS = 9


def lines(stream: IO[str]) -> Iterator[tuple[float, str]]:
    """(time, line) as they come."""
    for line in stream:
        yield time.perf_counter(), line.rstrip()


def wait_for(output: Iterator[tuple[float, str]], words: str) -> tuple[float, str]:
    """The first line with these words."""
    for moment, line in output:
        if words in line:
            return moment, line
    raise RuntimeError(f"the grader ended before it said {words!r}")


def main() -> None:
    """Print the times of right edits and of wrong ones."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "work"
        shutil.copytree(ROOT / "reference", folder, ignore=shutil.ignore_patterns("__pycache__"))
        file = folder / "a2_ring_all_reduce" / "ring.py"
        source = file.read_text(encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, "-m", "grader", "check", TASK, "--watch", "--lang", "en",
             "--solution", str(folder)],
            cwd=ROOT, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        try:
            output = lines(process.stdout)
            wait_for(output, "watching")
            right = source
            wrong = source.replace("combine(own, received, op)", "combine(own, own, op)")
            for label, text in (("right", right), ("wrong", wrong)):
                seconds = []
                for number in range(EDITS):
                    time.sleep(0.5)
                    begin = time.perf_counter()
                    file.write_text(f"{text}# edit {number} ({label})\n", encoding="utf-8")
                    first, _ = wait_for(output, "failed" if label == "wrong" else f"{TASK} ")
                    _, line = wait_for(output, "from the edit to the verdict")
                    seconds.append(first - begin)
                print(
                    f"{label} edits: median {statistics.median(seconds):.2f} s, "
                    f"{min(seconds):.2f} to {max(seconds):.2f} s of {EDITS}; all of it: {line}"
                )
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)


if __name__ == "__main__":
    main()
