"""Submissions that one core grades in an hour: a1 and a2 of synthetic students, in the sandbox.

`python -m bench.submissions --count 20 --jobs 4 [--throughput] [--tasks a1.broadcast a2]` takes
fewer, times them too, or grades other tasks.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from grader import tasks
from grader.submission import confinement
from grader.submission.spreadsheets import read_csv

ROOT = Path(__file__).resolve().parents[1]
COUNT = 100
WHATS = ("a1", "a2")
#: Of ten students six have everything, two are half-way, one has begun, one has a mistake.
KINDS = ("right", "right", "right", "half", "right", "wrong", "right", "half", "right", "stub")
_MISTAKE = """

def broadcast(tensor, src, group=None):
    tensor.zero_()
"""
_ENVIRONMENT = {
    "PATH": os.environ.get("PATH", os.defpath),
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "Student",
    "GIT_AUTHOR_EMAIL": "student@example.org",
    "GIT_COMMITTER_NAME": "Student",
    "GIT_COMMITTER_EMAIL": "student@example.org",
}


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        env=_ENVIRONMENT,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def _hand_in(folder: Path, kind: str, number: int, whats: Sequence[str]) -> str:
    """A repository of one student; the link to hand in."""
    folder.mkdir(parents=True)
    _git(folder, "init", "--quiet")
    keys = list(dict.fromkeys(what.partition(".")[0] for what in whats))
    for task in tasks.select(keys):  # one file of an assignment may build on another
        solved = kind in ("right", "wrong") or (kind == "half" and task.id.startswith("a1."))
        source = ROOT / ("reference" if solved else "assignments") / task.path
        place = folder / "assignments" / task.path
        place.parent.mkdir(parents=True, exist_ok=True)
        mark = "//" if task.is_kernel else "#"
        text = source.read_text(encoding="utf-8")
        mistaken = kind == "wrong" and task.path == tasks.find("a1.broadcast").path
        mistake = _MISTAKE if mistaken else ""
        place.write_text(f"{text}{mistake}\n{mark} student {number}\n", encoding="utf-8")
    _git(folder, "add", "--all")
    _git(folder, "commit", "--quiet", "--message", "work")
    return f"{folder}/tree/{_git(folder, 'rev-parse', 'HEAD')}"


def main(arguments: list[str] | None = None) -> None:
    """Print how many submissions a core grades in an hour, and what they came to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=COUNT, help="students")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="at once")
    parser.add_argument("--throughput", action="store_true", help="time them, too")
    parser.add_argument("--tasks", nargs="+", default=list(WHATS), help="tasks or assignments")
    chosen = parser.parse_args(arguments or [])
    reason = confinement.missing()
    with tempfile.TemporaryDirectory(prefix="tinyparallel-bench-") as scratch:
        folder = Path(scratch)
        lines = ["student,link"]
        for number in range(chosen.count):
            kind = KINDS[number % len(KINDS)]
            name = f"{kind}{number:03}"
            lines.append(f"{name},{_hand_in(folder / name, kind, number, chosen.tasks)}")
        (folder / "sheet.csv").write_text("\n".join(lines), encoding="utf-8")
        command = [sys.executable, "-m", "grader", "batch", str(folder / "sheet.csv")]
        command += chosen.tasks
        command += ["--out", str(folder / "out"), "--jobs", str(chosen.jobs), "--allow-local"]
        command += [] if chosen.throughput else ["--no-throughput"]
        command += [] if reason is None else ["--unsandboxed"]
        begin = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
        seconds = time.perf_counter() - begin
        books = read_csv(folder / "out/gradebook.csv")
    cores = min(chosen.jobs, len(os.sched_getaffinity(0)))
    graded = sum(book["status"] == "graded" for book in books)
    confined = "in the sandbox" if reason is None else f"without a sandbox ({reason})"
    print(f"{graded} of {len(books)} submissions in {seconds:.0f} s on {cores} cores, {confined}")
    an_hour = graded / (seconds * cores / 3600)
    print(f"{an_hour:.0f} submissions per core-hour ({' and '.join(chosen.tasks)})")
    for kind in dict.fromkeys(KINDS[: chosen.count]):
        points = {f"{book['points']} of {book['max_points']}" for book in books
                  if book["student"].startswith(kind)}  # fmt: skip
        print(f"  {kind}: {', '.join(sorted(points))} points")


if __name__ == "__main__":
    main(sys.argv[1:])
