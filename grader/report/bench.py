"""`grader bench`: the columns of nccl-tests for the student, the reference and the backend."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TextIO

from grader import __version__
from grader.checks.benches import Row, bench_task, benched_tasks
from grader.checks.settings import CannotRun, Device, project_folder
from grader.harness.binding import TooFewGpus

FORMAT: Final = 1
SIZES: Final = (64 << 10, 1 << 20, 16 << 20)
_UNITS: Final = {"": 0, "K": 10, "M": 20, "G": 30}
_SMALLEST: Final = 4


def parse_sizes(text: str) -> list[int]:
    """ "64K,1M,16M" in bytes (K, M, G are powers of 1024). Raises `CannotRun`."""
    sizes = []
    for part in text.split(","):
        word = part.strip().upper().removesuffix("IB").removesuffix("B")
        number, unit = (word[:-1], word[-1]) if word[-1:] in ("K", "M", "G") else (word, "")
        if not number.isascii() or not number.isdigit() or int(number) == 0:
            raise CannotRun(f"--sizes: {part.strip()!r} is no size; expected one like 64K or 16M")
        nbytes = int(number) << _UNITS[unit]
        if nbytes % _SMALLEST:
            raise CannotRun(f"--sizes: {nbytes} bytes are no whole number of float32 elements")
        sizes.append(nbytes)
    return sizes


def run_bench(
    whats: Sequence[str],
    folder: Path,
    solution: str,
    *,
    ranks: int,
    sizes: Sequence[int],
    device: Device,
    json_file: Path | None,
    out: TextIO,
) -> int:
    """Measure, print rows as they come, write JSON; returns an exit status: 1 if any was wrong.

    folder, solution: of the student's work, and how the user named it. The reference is measured
    beside it where the kit has it. Raises `CannotRun`, `tasks.UnknownTask`.
    """
    chosen = benched_tasks(whats)
    if not chosen:
        raise CannotRun(f"nothing to measure in {' '.join(whats) or 'what this kit grades'}")
    solutions = [("student", folder)]
    reference = project_folder() / "reference"
    if reference.is_dir():
        if reference.samefile(folder):
            solutions = [("reference", folder)]
        else:
            solutions.append(("reference", reference))
    rows: list[Row] = []
    for task in chosen:
        out.write(_heading(task, ranks, device))
        try:
            for row in bench_task(task, solutions, ranks, sizes, device):
                rows.append(row)
                out.write(_line(row))
                out.flush()
        except TooFewGpus as few:
            raise CannotRun(str(few)) from None
    if json_file is not None:
        document = _document(rows, solution, ranks, device)
        json_file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 1 if any(row.wrong or row.note for row in rows if row.who == "student") else 0


def _heading(task: str, ranks: int, device: str) -> str:
    return (
        f"# {task}, {ranks} ranks on {device}; time: median of a call; "
        f"algbw, busbw: 10^9 bytes/s\n"
        f"#{'size':>12} {'count':>12} {'type':>6} {'redop':>6} {'who':>10} "
        f"{'time':>11} {'algbw':>7} {'busbw':>7} {'#wrong':>7}\n"
        f"#{'(B)':>12} {'(elements)':>12} {'':>6} {'':>6} {'':>10} "
        f"{'(us)':>11} {'(GB/s)':>7} {'(GB/s)':>7}\n"
    )


def _line(row: Row) -> str:
    start = f" {row.nbytes:>12} {row.count:>12} {row.dtype:>6} {row.redop:>6} {row.who:>10} "
    if row.seconds is None or row.algbw is None or row.busbw is None:
        return f"{start}{row.note}\n"
    return (
        f"{start}{row.seconds * 1e6:>11.1f} {row.algbw / 1e9:>7.2f} {row.busbw / 1e9:>7.2f} "
        f"{row.wrong:>7}\n"
    )


def _document(rows: Sequence[Row], solution: str, ranks: int, device: str) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "kit": __version__,
        "solution": solution,
        "device": device,
        "ranks": ranks,
        "machine": {"processor": platform.machine(), "python": platform.python_version()},
        "rows": [row.to_json() for row in rows],
    }
