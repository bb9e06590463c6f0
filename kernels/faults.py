"""From a fault of the simulated machine to a message with lines of the student's file."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: By number, as runtime/interface.h counts them.
KINDS = (
    *("ok", "out_of_bounds", "misaligned", "race", "barrier", "uninitialised"),
    *("unwritten", "read_only", "assert", "crash", "bad_launch"),
)

#: What is most likely behind a kind of fault, in one line.
CAUSES = {
    "out_of_bounds": "an index that runs past the end: is the tail handled, is i < n checked?",
    "misaligned": "a 16-byte access needs an address that is a multiple of 16: handle the unaligned "
    "head, or fall back to single elements",
    "race": "a barrier is missing, or an addition that should be atomic is not",
    "barrier": "a barrier, or a warp operation, inside a branch or loop that not all threads take, "
    "or after a return",
    "uninitialised": "memory is read before anything was written to it",
    "unwritten": "the tail is missing, or the loop's stride skips elements",
    "read_only": "an input was taken for an output",
    "assert": "the kernel's own assertion",
    "crash": "the kernel crashed",
}


@dataclass(frozen=True)
class KernelFault(Exception):
    """The first fault of a launch: the run ended there.

    kind: one of `KINDS`. kernel: its name. block, thread: (x, y, z), None when no thread is to
    blame. file, line: of the access, wait or assertion; of the second place of a race too.
    """

    kind: str
    kernel: str
    text: str
    block: tuple[int, ...] | None
    thread: tuple[int, ...] | None
    file: str
    line: int
    other_line: int

    def __str__(self) -> str:
        if self.block is None or self.thread is None:
            return f"{self.kernel}: {self.text}"
        block, thread = (",".join(map(str, each)) for each in (self.block, self.thread))
        return f"{self.kernel}, block ({block}), thread ({thread}): {self.text}"

    @property
    def cause(self) -> str | None:
        """The likely cause in one line."""
        return CAUSES.get(self.kind)


def describe(fault: Any, kernel: str, library: Path) -> KernelFault:
    """The fault that the launcher reported, with program counters turned into lines."""
    places = [(place.file, place.line) for place in fault.places]
    counters = [place.pc for place in fault.places]
    wanted = [pc for pc in counters if pc]
    lines = dict(zip(wanted, source_lines(library, wanted), strict=True))
    places = [lines.get(pc, place) for pc, place in zip(counters, places, strict=True)]
    kind = KINDS[fault.kind]
    return KernelFault(
        kind,
        kernel,
        fault.message.replace("{0}", _place(*places[0])).replace("{1}", _place(*places[1])),
        tuple(fault.block) if fault.has_thread else None,
        tuple(fault.thread) if fault.has_thread else None,
        places[0][0],
        places[0][1],
        places[1][1],
    )


def _place(file: str, line: int) -> str:
    return f"{Path(file).name}:{line}" if file else "an unknown line"


def source_lines(library: Path, counters: list[int]) -> list[tuple[str, int]]:
    """(file, line) of each program counter: the innermost one outside the kit's own headers."""
    if not counters:
        return []
    tool = shutil.which("addr2line") or shutil.which("llvm-addr2line")
    if tool is None:
        return [("", 0)] * len(counters)
    result = []
    for counter in counters:
        command = [tool, "-e", str(library), "-i", hex(counter)]
        told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
        result.append(_innermost(told.stdout))
    return result


def _innermost(text: str) -> tuple[str, int]:
    places = []
    for line in text.splitlines():
        match = re.match(r"(.+):(\d+)", line)
        if match is not None and match[1] != "??":
            places.append((match[1], int(match[2])))
    ours = str(Path(__file__).parent / "include")
    for file, number in places:
        if not file.startswith(ours) and "/kernels/include/" not in file:
            return file, number
    return places[0] if places else ("", 0)
