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
    "misaligned": "a 16-byte access needs an address that is a multiple of 16: handle the "
    "unaligned head, or fall back to single elements",
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
    chains = [
        call_chain(library, place.pc) if place.pc else [(place.file, place.line)]
        for place in fault.places
    ]
    text = fault.message
    for i, chain in enumerate(chains):
        text = text.replace(f"{{{i}}}", _place(chain))
    return KernelFault(
        KINDS[fault.kind],
        kernel,
        text,
        tuple(fault.block) if fault.has_thread else None,
        tuple(fault.thread) if fault.has_thread else None,
        chains[0][0][0],
        chains[0][0][1],
        chains[1][0][1],
    )


def _place(chain: list[tuple[str, int]]) -> str:
    """ "kernels.cu:12 (called from kernels.cu:30)"."""
    file, line = chain[0]
    if not file:
        return "an unknown line"
    place = f"{Path(file).name}:{line}"
    callers = [f"{Path(file).name}:{line}" for file, line in chain[1:3]]
    return f"{place} (called from {', '.join(callers)})" if callers else place


def call_chain(library: Path, counter: int) -> list[tuple[str, int]]:
    """(file, line) of a program counter, then of the calls that were inlined around it.

    The kit's own headers are left out. [("", 0)] when it cannot be known.
    """
    tool = shutil.which("addr2line") or shutil.which("llvm-addr2line")
    if tool is None:
        return [("", 0)]
    command = [tool, "-e", str(library), "-i", hex(counter)]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    places = []
    for line in told.stdout.splitlines():
        match = re.match(r"(.+):(\d+)", line)
        if match is not None and match[1] != "??":
            places.append((match[1], int(match[2])))
    own = [place for place in places if _INCLUDE not in place[0] and "launched" not in place[0]]
    return own or places or [("", 0)]


_INCLUDE = "/kernels/include/"
