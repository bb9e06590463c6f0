"""Machines, and what `nvidia-smi topo -m` prints on them, in all forms in which people paste it.

A `Machine` is the truth; `render` writes it down in a `Style`. Nothing here can read such a text.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

LEGEND = """Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""  # noqa: E501 (as the tool prints it)


@dataclass(frozen=True)
class Machine:
    """GPUs and NICs, how each pair is linked, and the affinities as the tool writes them.

    between(a, b): kind of the link between devices number a < b (GPUs first, then NICs).
    cpus, numas: per GPU, "0-23,48-71", "N/A", …
    """

    gpus: int
    between: Callable[[int, int], str]
    cpus: Sequence[str]
    numas: Sequence[str]
    nics: int = 0

    def kind(self, a: int, b: int) -> str:
        """The link between two devices by number."""
        return "X" if a == b else self.between(min(a, b), max(a, b))


@dataclass(frozen=True)
class Style:
    """How the text looks.

    columns: padded with blanks, not parted by tabs. underline: ANSI codes around the header.
    numa, cpu, numa_id: which of the three last columns there are. nic_rows: NICs have rows.
    old_names: "mlx5_0" for "NIC0". legend: the legends follow. preamble, postamble: text around.
    wrap: columns after which lines break at a blank; hard_wrap: anywhere. glue: numbers of lines of
    the matrix (header 0) that have lost the line break before them. crlf: line ends.
    gap: blanks between the cells of one row of `columns`. blank_cells: affinities are left out.
    """

    columns: bool = False
    underline: bool = False
    numa: bool = True
    cpu: bool = True
    numa_id: bool = False
    nic_rows: bool = True
    old_names: bool = False
    legend: bool = True
    preamble: str = ""
    postamble: str = ""
    wrap: int = 0
    hard_wrap: int = 0
    glue: tuple[int, ...] = ()
    crlf: bool = False
    loose_lists: bool = False


def names_of(machine: Machine, style: Style) -> list[str]:
    """Devices as the header calls them."""
    card = "mlx5_" if style.old_names else "NIC"
    return [f"GPU{i}" for i in range(machine.gpus)] + [f"{card}{i}" for i in range(machine.nics)]


def render(machine: Machine, style: Style = Style()) -> str:
    """What the tool prints."""
    lines = matrix_lines(machine, style)
    text = lines[0]
    for number, line in enumerate(lines[1:], 1):
        text += line if number in style.glue else f"\n{line}"
    text = "\n".join(_wrapped(line, style) for line in text.split("\n"))
    text = f"{style.preamble}{text}\n"
    if style.legend:
        text += f"\n{LEGEND}"
        if machine.nics and not style.old_names:
            cards = "\n".join(f"  NIC{i}: {card_name(i)}" for i in range(machine.nics))
            text += f"\nNIC Legend:\n\n{cards}\n"
    text += style.postamble
    return text.replace("\n", "\r\n") if style.crlf else text


def card_name(number: int) -> str:
    """The device behind NIC `number`."""
    return f"mlx5_{number}" if number % 5 != 4 else f"mlx5_bond_{number}"


def matrix_lines(machine: Machine, style: Style) -> list[str]:
    """The header and the rows."""
    names = names_of(machine, style)
    last = ["CPU Affinity"] * style.cpu + ["NUMA Affinity"] * style.numa
    last += ["GPU NUMA ID"] * style.numa_id
    rows = [["", *names, *last]]
    for row, name in enumerate(names):
        if row >= machine.gpus and not style.nic_rows:
            break
        cells = [name] + [f" {kind} " if (kind := machine.kind(row, column)) == "X" else kind
                          for column in range(len(names))]  # fmt: skip
        if row < machine.gpus:
            cpus = machine.cpus[row].replace(",", ", ") if style.loose_lists else machine.cpus[row]
            cells += [cpus] * style.cpu + [machine.numas[row]] * style.numa
            # The tool really puts two tabs before this cell.
            cells += (["", "N/A"] if not style.columns else ["N/A"]) * style.numa_id
        rows.append(cells)
    if style.columns:
        lines = ["".join(f"{cell.strip():<8}" if len(cell) < 8 else f"{cell}   " for cell in cells)
                 for cells in rows]  # fmt: skip
    else:
        lines = ["\t".join(cells) for cells in rows]
    if style.underline:
        lines[0] = f"\x1b[4m{lines[0]}\x1b[0m"
    return lines


def _wrapped(line: str, style: Style) -> str:
    if style.hard_wrap:
        width = style.hard_wrap
        return "\n".join(line[i : i + width] for i in range(0, max(len(line), 1), width))
    if not style.wrap:
        return line
    kept, room = [""], style.wrap
    for cell in re.findall(r"\s*\S+(?: Affinity| NUMA ID)?", line):
        if len(kept[-1]) + len(cell) > room and kept[-1].strip():
            kept.append(cell.lstrip())
        else:
            kept[-1] += cell
    return "\n".join(kept)


def numbers(cell: str) -> list[int]:
    """The numbers of an affinity cell, ascending."""
    if cell == "N/A":
        return []
    found: set[int] = set()
    for part in cell.split(","):
        ends = [int(end) for end in part.split("-")]
        found |= set(range(ends[0], ends[-1] + 1))
    return sorted(found)


@dataclass(frozen=True)
class Expected:
    """What `Topology` must hold. `optional`: links that it may hold beside `links`."""

    gpus: list[str]
    nics: list[str]
    links: dict[tuple[str, str], str]
    cpu_affinity: dict[str, list[int]]
    numa_affinity: dict[str, list[int]]
    nic_names: dict[str, str] = field(default_factory=dict)
    optional: Mapping[tuple[str, str], str] = field(default_factory=dict)


def expected(machine: Machine, style: Style = Style()) -> Expected:
    """What a reader of `render(machine, style)` must find."""
    names = names_of(machine, style)
    gpus, nics = names[: machine.gpus], names[machine.gpus :]
    links: dict[tuple[str, str], str] = {}
    optional: dict[tuple[str, str], str] = {}
    for a, b in [*permutations(range(len(names)), 2), *((i, i) for i in range(len(names)))]:
        told = style.nic_rows or min(a, b) < machine.gpus
        (links if told else optional)[names[a], names[b]] = machine.kind(a, b)
    if not style.nic_rows:
        optional = {pair: kind for pair, kind in optional.items() if pair[0] == pair[1]}
    cards = style.legend and not style.old_names
    return Expected(
        gpus,
        nics,
        links,
        {gpu: numbers(machine.cpus[i]) if style.cpu else [] for i, gpu in enumerate(gpus)},
        {gpu: numbers(machine.numas[i]) if style.numa else [] for i, gpu in enumerate(gpus)},
        {nic: card_name(i) for i, nic in enumerate(nics)} if cards else {},
        optional,
    )


def random_machine(rng: random.Random, gpus: int | None = None) -> Machine:
    """A machine that could be anything."""
    count = gpus or rng.choice([1, 2, 3, 4, 8])
    nics = rng.choice([0, 0, 1, 2, 4])
    kinds = ["PIX", "PXB", "PHB", "NODE", "SYS"]
    links = [f"NV{rng.choice([1, 2, 4, 12, 18])}" for _ in range(2)]
    table = {
        (a, b): rng.choice(kinds + links * 3 if b < count else kinds)
        for b in range(count + nics)
        for a in range(b)
    }
    step = rng.choice([4, 6, 12])
    cpus, numas = [], []
    for gpu in range(count):
        begin = gpu * 2 // max(count, 1) * step
        near = f"{begin}-{begin + step - 1}"
        cpus.append(rng.choice([near, f"{near},{begin + 96}-{begin + 99}", f"{begin},{begin + 2}"]))
        numas.append(rng.choice(["0", "1", "N/A", "0-1", "0,2"]))
    return Machine(count, lambda a, b: table[a, b], cpus, numas, nics)


def random_style(rng: random.Random, machine: Machine) -> Style:
    """Some of the mess, together."""
    lines = machine.gpus + 1
    glue = tuple(sorted(rng.sample(range(1, lines), rng.choice([0, 0, 1])))) if lines > 1 else ()
    numa = rng.random() < 0.8
    return Style(
        columns=rng.random() < 0.4 and not glue,
        underline=rng.random() < 0.4,
        numa=numa,
        numa_id=numa and rng.random() < 0.3,
        nic_rows=rng.random() < 0.7,
        old_names=rng.random() < 0.3,
        legend=rng.random() < 0.7,
        preamble=rng.choice(["", "\n", "user@node:~$ nvidia-smi topo -m\n", "Warning: slow\n\n"]),
        wrap=rng.choice([0, 0, 60, 90]) if not glue else 0,
        crlf=rng.random() < 0.2,
        loose_lists=rng.random() < 0.2,
    )


def as_arguments(wanted: Expected) -> dict[str, Any]:
    """A topology as plain data, as drivers take it."""
    return {
        "gpus": wanted.gpus,
        "nics": wanted.nics,
        "links": [[a, b, kind] for (a, b), kind in wanted.links.items()],
        "cpu_affinity": wanted.cpu_affinity,
        "numa_affinity": wanted.numa_affinity,
        "nic_names": wanted.nic_names,
    }
