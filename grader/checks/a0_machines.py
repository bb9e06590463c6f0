"""Cases of assignment 0 about reading a topology, and the machines that they use."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from grader.checks import a0_topologies as topologies
from grader.checks.a0_cases import Case, expect_same, shown
from grader.checks.a0_topologies import Expected, Machine, Style
from grader.checks.framework import CheckFailed

# Machines that people have ----------------------------------------------------------------------


def dgx(gpus: int = 8, links: str = "NV12", nics: int = 8) -> Machine:
    """NVSwitch: all GPUs alike; two NICs and two GPUs below each PCIe switch, two NUMA nodes."""

    def between(a: int, b: int) -> str:
        if b < gpus:
            return links
        places = [x if x < gpus else x - gpus for x in (a, b)]
        if places[0] // 2 == places[1] // 2:
            return "PXB" if a < gpus else "PIX"
        return "NODE" if places[0] * 2 // gpus == places[1] * 2 // gpus else "SYS"

    cpus = ["0-23,48-71" if gpu < (gpus + 1) // 2 else "24-47,72-95" for gpu in range(gpus)]
    numas = ["0" if gpu < (gpus + 1) // 2 else "1" for gpu in range(gpus)]
    return Machine(gpus, between, cpus, numas, nics)


def cube_mesh() -> Machine:
    """DGX-1 V100: NVLink in pairs and singles, SYS where there is none, 4 NICs."""
    double = [
        (0, 3),
        (0, 4),
        (1, 2),
        (1, 5),
        (2, 3),
        (2, 6),
        (3, 7),
        (4, 7),
        (5, 6),
        (6, 7),
        (4, 5),
    ]
    single = [(0, 1), (0, 2), (1, 3), (4, 6), (5, 7), (1, 4)]
    kinds = dict.fromkeys(double, "NV2") | dict.fromkeys(single, "NV1")

    def between(a: int, b: int) -> str:
        if b < 8:
            return kinds.get((a, b), "SYS")
        if a < 8:
            return "PIX" if a // 2 == b - 8 else ("PHB" if a // 4 == (b - 8) // 2 else "SYS")
        return "SYS"

    cpus = ["0-19,40-59"] * 4 + ["20-39,60-79"] * 4
    return Machine(8, between, cpus, ["0"] * 4 + ["1"] * 4, 4)


def pcie(gpus: int = 8) -> Machine:
    """PCIe only: pairs below a switch, two host bridges in each of two NUMA nodes; no NIC."""

    def between(a: int, b: int) -> str:
        for share, kind in ((2, "PIX"), (gpus // 2, "NODE")):
            if a // share == b // share:
                return kind
        return "SYS"

    half = gpus // 2
    return Machine(gpus, between, ["0-31"] * half + ["32-63"] * half, ["0"] * half + ["1"] * half)


def workstation() -> Machine:
    """One GPU, one card."""
    return Machine(1, lambda a, b: "PHB", ["0-15"], ["N/A"], 1)


def virtual() -> Machine:
    """Two GPUs in a virtual machine that tells nothing."""
    return Machine(2, lambda a, b: "PHB", ["N/A"] * 2, ["N/A"] * 2)


# parse_topology ---------------------------------------------------------------------------------


def parse_case(label: str, machine: Machine, style: Style, *parts: str) -> Case:
    """Read a text; parts: which fields are judged, all if none is named."""
    wanted = topologies.expected(machine, style)
    cells = [*machine.cpus, *machine.numas]
    shares = {
        "ansi": style.underline,
        "crlf": style.crlf,
        "preamble": bool(style.preamble),
        "columns": style.columns,
        "tabs": not style.columns,
        "no numa column": not style.numa,
        "gpu numa id": style.numa_id,
        "no nic rows": bool(machine.nics) and not style.nic_rows,
        "old nic names": bool(machine.nics) and style.old_names,
        "no legend": not style.legend,
        "wrapped": bool(style.wrap),
        "glued": bool(style.glue),
        "list": any("," in cell for cell in cells),
        "N/A": "N/A" in cells,
        "one gpu": machine.gpus == 1,
        "two digits": machine.gpus > 10,
    }
    traits = frozenset(name for name, holds in shares.items() if holds)
    text = topologies.render(machine, style)
    return Case(
        label, {"text": text}, lambda got: judge_topology(got, wanted, parts), traits=traits
    )


def judge_topology(got: Any, wanted: Expected, parts: Sequence[str] = ()) -> None:
    """Compare a Topology field by field."""
    if not isinstance(got, dict) or "links" not in got:
        raise CheckFailed(f"returned {shown(got)}, expected a Topology")
    for name in parts or ("gpus", "nics", "links", "cpu_affinity", "numa_affinity", "nic_names"):
        if name == "links":
            _judge_links({(a, b): kind for a, b, kind in got["links"]}, wanted)
        else:
            suspects: list[tuple[Any, str]] = [
                ({}, f"`{name}` was left empty"),
                ([], f"`{name}` was left empty"),
            ]
            if name in ("cpu_affinity", "numa_affinity"):
                for gpu, cores in getattr(wanted, name).items():
                    expect_same(got[name].get(gpu), cores, f"{name}[{gpu!r}]", _affinities(cores))
                continue
            expect_same(got[name], getattr(wanted, name), f"`{name}`", suspects)


def _judge_links(links: dict[tuple[str, str], str], wanted: Expected) -> None:
    for (a, b), kind in wanted.links.items():
        if (a, b) not in links:
            cause = None
            if (b, a) in links:
                cause = "`links` holds one order of each pair, expected both"
            raise CheckFailed(f"links has no entry for ({a!r}, {b!r}), expected {kind!r}", cause)
        suspects = [(kind.lower(), "kinds are written as the tool writes them")]
        if kind.startswith("NV"):
            suspects += [
                ("NV#", "the number of bonded links is lost"),
                ("NV", "the number is lost"),
            ]
        expect_same(links[a, b], kind, f"links[{a!r}, {b!r}]", suspects)
    for pair, kind in links.items():
        if pair not in wanted.links and wanted.optional.get(pair) != kind:
            raise CheckFailed(f"links[{pair}] is {kind!r}, but the text does not tell of this pair")


def _affinities(cores: list[int]) -> list[tuple[Any, str]]:
    return [
        (None, "this GPU is missing"),
        (sorted({cores[0], cores[-1]}) if cores else None, "only the ends of ranges are kept"),
        (list(range(cores[0], cores[-1] + 1)) if cores else None,
         "a list of several ranges is not one range"),
    ]  # fmt: skip


def styles() -> dict[str, Style]:
    """One kind of mess each."""
    return {
        "plain": Style(),
        "columns of blanks": Style(columns=True),
        "underlined header": Style(underline=True),
        "a prompt before": Style(preamble="root@n1:~# nvidia-smi topo -m\n"),
        "a warning before, a prompt after": Style(
            preamble="Warning: persistence mode is off on GPU0\n\n", legend=False,
            postamble="root@n1:~# \n",
        ),
        "CRLF": Style(crlf=True),
        "no legend": Style(legend=False),
        "column GPU NUMA ID": Style(numa_id=True),
        "no NUMA column": Style(numa=False),
    }  # fmt: skip


def cut_cases() -> list[Case]:
    """Texts that are no matrix, or not all of one. What the message must say: a line's number."""
    cases = []
    for label, text, near in _cuts():
        numbers = "|".join(str(number) for number in near)
        words = [rf"\b[Ll]ine\s+(?:{numbers})\b" if near else r"\b[Ll]ine\s+\d+\b"]
        lines = ", ".join(f'"line {number}"' for number in near) or '"line N"'
        asked = f"one of {lines}" if len(near) > 1 else lines
        cases.append(
            Case(label, {"text": text}, refused=words, asked=asked, blame=_line_blame(near))
        )
    return cases


def _line_blame(near: Sequence[int]) -> Callable[[str], str | None]:
    def blame(message: str) -> str | None:
        named = [int(number) for number in re.findall(r"\b[Ll]ine\s+(\d+)\b", message)]
        if not near or not named:
            return None
        if named[0] + 1 in near and named[0] not in near:
            return "lines are counted from 1, empty ones and those before the matrix too"
        return "the message names a line, but another one than that of the damage"

    return blame


def _cuts() -> list[tuple[str, str, list[int]]]:
    """(label, text, lines that the error may name: any if none)."""
    found: list[tuple[str, str, list[int]]] = [
        ("an empty text", "", []),
        ("another tool's output", "NVIDIA-SMI has failed because it couldn't communicate\n", []),
        ("the legend alone", topologies.LEGEND, []),
    ]
    for name, style in (("tabs", Style(legend=False)), ("columns", Style(True, legend=False))):
        lines = topologies.matrix_lines(dgx(nics=2), style)
        found += [
            (f"{name}: the header alone", lines[0], []),
            (f"{name}: rows of GPU5 to GPU7 cut off", "\n".join(lines[:6]), [1, 6, 7]),
            (f"{name}: the row of GPU3 lost", "\n".join(lines[:4] + lines[5:]), [1, 4, 5]),
            (f"{name}: cut in the row of GPU4", "\n".join(lines[:5]) + "\n" + lines[5][:30], [6]),
            (f"{name}: cut before the last row's affinities",
             "\n".join(lines[:8]) + "\n" + lines[8].split("24-47")[0].rstrip(), [9]),
            (f"{name}: a prompt, then rows cut off",
             "\n".join(["$ topo", "", *lines[:4]]), [3, 6, 7]),
        ]  # fmt: skip
        broken = lines[3].replace("NV12", "", 1)
        text = "\n".join([*lines[:3], broken, *lines[4:]])
        found.append((f"{name}: a cell of GPU2's row lost", text, [4]))
    return found
