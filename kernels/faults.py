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
#: Conversions that every kernels.cu begins with: an access in one is a line of its caller's.
_GIVEN = ("to_float", "from_float")
_INCLUDE = "/kernels/include/"


@dataclass(eq=False)
class KernelFault(Exception):
    """The first fault of a launch: the run ended there.

    kind: one of `KINDS`. kernel: its name. block, thread: (x, y, z), None when no thread is to
    blame. file, line: of the access, wait or assertion; of the second place of a race too.
    barrier_line: of the __syncthreads that both sides of a race come after, 0 without one.
    """

    kind: str
    kernel: str
    text: str
    block: tuple[int, ...] | None
    thread: tuple[int, ...] | None
    file: str
    line: int
    other_line: int
    barrier_line: int

    def __str__(self) -> str:
        if self.block is None or self.thread is None:
            return f"{self.kernel}: {self.text}"
        block, thread = (",".join(map(str, each)) for each in (self.block, self.thread))
        return f"{self.kernel}, block ({block}), thread ({thread}): {self.text}"


def describe(fault: Any, kernel: str, library: Path) -> KernelFault:
    """The fault that the launcher reported, with program counters turned into lines."""
    chains = [
        call_chain(library, place.pc, kernel) if place.pc else [(place.file, place.line)]
        for place in fault.places
    ]
    text = fault.message
    for i, chain in enumerate(chains):
        text = text.replace(f"{{{i}}}", _place(chain))
    lines = [chain[0][1] for chain in chains]
    return KernelFault(
        KINDS[fault.kind],
        kernel,
        text,
        tuple(fault.block) if fault.has_thread else None,
        tuple(fault.thread) if fault.has_thread else None,
        chains[0][0][0],
        *lines,
    )


def _place(chain: list[tuple[str, int]]) -> str:
    """ "kernels.cu:12 (called from kernels.cu:30)"."""
    file, line = chain[0]
    if not file:
        return "an unknown line"
    place = f"{Path(file).name}:{line}"
    callers = [f"{Path(file).name}:{line}" for file, line in chain[1:3]]
    return f"{place} (called from {', '.join(callers)})" if callers else place


def call_chain(library: Path, counter: int, kernel: str = "") -> list[tuple[str, int]]:
    """(file, line) of a program counter, then of the calls that were inlined around it.

    The kit's own headers and the conversions that it gives are left out, and so is the line of
    `kernel` itself that calls what the student wrote. [("", 0)] when it cannot be known.
    """
    tool = shutil.which("addr2line") or shutil.which("llvm-addr2line")
    if tool is None:
        return [("", 0)]
    command = [tool, "-e", str(library), "-f", "-i", hex(counter)]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    lines = told.stdout.splitlines()
    frames = []
    for function, place in zip(lines[::2], lines[1::2], strict=False):
        match = re.match(r"(.+):(\d+)", place)
        if match is not None and match[1] != "??":
            frames.append((function, match[1], int(match[2])))
    own = [each for each in frames if _INCLUDE not in each[1] and "launched" not in each[1]]
    theirs = [each for each in own if not any(given in each[0] for given in _GIVEN)]
    if len(theirs) > 1 and theirs[-1][0] == kernel:
        theirs.pop()
    return [(file, line) for _, file, line in theirs or own or frames] or [("", 0)]
