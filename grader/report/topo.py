"""`grader topo`: this machine's devices and links as tables and a picture, and their speed."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, TextIO

from grader.checks.settings import CannotRun, Settings, solution_folder
from grader.report.topo_devices import Device, Machine, discover
from grader.report.topo_measure import Links, measure

PARSE = "a0.parse_topology"
SMI_SECONDS = 10.0
MOST_TEXT = 1 << 20  # bytes of a text that are read
MOST_DEVICES = 64  # of a parsed matrix that are shown


def show_topology(
    out: TextIO,
    *,
    json_file: Path | None = None,
    measured: bool = True,
    solution: str | None = None,
    text_file: Path | None = None,
) -> int:
    """Print what this machine is made of, and how fast its links are.

    Returns 0, or 1 when the solution's parser raised or is not implemented.

    json_file: written, too. measured: without, nothing is timed. solution: a solution folder (or
    "assignments", "reference") whose `parse_topology` shall read what `nvidia-smi topo -m` prints
    here, or the text in `text_file`. Raises CannotRun when that was asked for and cannot be done,
    and OSError when a file cannot be written or read; a machine that lacks things is no error.
    """
    if text_file is not None and solution is None:
        raise CannotRun("--text needs --solution: whose parse_topology is to read it?")
    text = smi_text(text_file) if solution is not None else ""
    machine = discover()
    _print_machine(machine, out)
    document: dict[str, Any] = {"format": 1, "machine": machine.to_json()}
    if measured:
        links = measure()
        _print_links(links, out)
        document["links"] = vars(links)
    failed = False
    if solution is not None:
        document["parsed"] = parsed_by(solution, text)
        failed = _print_parsed(document["parsed"], f"{PARSE} of {solution}", out)
    if json_file is not None:
        json_file.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        print(f"\nwritten to {json_file}", file=out)
    return int(failed)


def smi_text(file: Path | None) -> str:
    """What `nvidia-smi topo -m` prints here, or the file's text."""
    if file is not None:
        with file.open("rb") as opened:
            return opened.read(MOST_TEXT).decode("utf-8", errors="replace")
    command = shutil.which("nvidia-smi")
    if command is None:
        raise CannotRun("there is no nvidia-smi here: give its output in a file")
    try:
        with tempfile.TemporaryFile() as told:
            run = subprocess.run(
                [command, "topo", "-m"],
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=subprocess.STDOUT,
                timeout=SMI_SECONDS,
            )
            told.seek(0)
            text = told.read(MOST_TEXT).decode("utf-8", errors="replace")
    except subprocess.TimeoutExpired:
        raise CannotRun(f"nvidia-smi topo -m did not end in {SMI_SECONDS:g} s") from None
    except (OSError, subprocess.SubprocessError) as error:
        raise CannotRun(f"nvidia-smi topo -m: {error}") from None
    if run.returncode != 0:
        said = (text.strip().splitlines() or ["it says nothing"])[0][:200]
        raise CannotRun(f"nvidia-smi topo -m ended with status {run.returncode}: {said}")
    return text


def parsed_by(solution: str, text: str) -> dict[str, Any]:
    """What the solution's parser makes of the text, in a worker: `returned`, or `error`."""
    from grader.checks.framework import CheckFailed
    from grader.checks.world import SimulatedCluster

    settings = Settings(solution, solution_folder(solution))
    inputs = {"task": PARSE, "cases": [{"arguments": {"text": text}}]}
    try:
        outcome = SimulatedCluster(settings, {}).run("a0:calls", [inputs], task=PARSE)
    except CheckFailed as failure:
        return {"returned": None, "error": {"message": failure.message}}
    answer: dict[str, Any] = outcome.outputs[0][0]
    return answer


# Tables and the picture -------------------------------------------------------------------------


def _print_machine(machine: Machine, out: TextIO) -> None:
    print(f"{machine.cpu}, {machine.cores} logical CPUs", file=out)
    print("\n".join(picture(machine)), file=out)
    gpus = [device for device in machine.devices if device.kind == "gpu"]
    rows = [
        [
            device.name,
            device.what,
            device.bus[-1] if device.bus else "-",
            str(device.numa) if device.numa >= 0 else "-",
            device.link or "-",
            ", ".join(f"{key} {value}" for key, value in device.details.items()) or "-",
        ]
        for device in machine.devices
    ]
    _table(["device", "what", "PCI", "NUMA", "link", "details"], rows, out)
    if len(machine.devices) > 1:
        names = [device.name for device in machine.devices]
        how = [
            [a, *("X" if a == b else machine.pairs.get((a, b), "?") for b in names)] for a in names
        ]
        _table(["", *names], how, out)
        source = "NVML and the PCI bus" if gpus else "the PCI bus"
        print(f"(from {source}; marks as in nvidia-smi's legend)", file=out)
    for note in machine.notes:
        print(f"note: {note}", file=out)


def picture(machine: Machine) -> list[str]:
    """The machine as a tree: NUMA nodes, bridges below them, devices at the leaves."""
    lines = ["this machine"]
    groups: dict[int, list[Device]] = {node.number: [] for node in machine.numa}
    for device in machine.devices:
        number = device.numa
        if number not in groups and len(groups) == 1:
            number = next(iter(groups))  # where there is one node, devices belong to it
        groups.setdefault(number, []).append(device)
    cpus = {node.number: node for node in machine.numa}
    for place, (number, devices) in enumerate(groups.items()):
        last = place + 1 == len(groups)
        node = cpus.get(number)
        title = "on no NUMA node" if number < 0 else f"NUMA node {number}"
        if node is not None:
            title += f": CPUs {node.cpus}, {node.memory_bytes / 2**30:.1f} GiB"
        lines.append(f"{'└' if last else '├'}── {title}")
        tree: dict[str, Any] = {}
        for device in devices:
            at = tree
            for bridge in device.bus[:-1]:
                at = at.setdefault(bridge, {})
            at[f"{device.name} ({device.what})"] = {}
        _grow(tree, "    " if last else "│   ", lines)
    return lines


def _grow(tree: dict[str, Any], indent: str, lines: list[str]) -> None:
    for place, (name, below) in enumerate(tree.items()):
        last = place + 1 == len(tree)
        lines.append(f"{indent}{'└' if last else '├'}── {name}")
        _grow(below, indent + ("    " if last else "│   "), lines)


def _print_parsed(parsed: dict[str, Any], title: str, out: TextIO) -> bool:
    """The matrix that a parser found, or one line that says what went wrong; whether it did."""
    error, found = parsed["error"], parsed["returned"]
    if error is not None:
        kind = f"{error['type']}: " if "type" in error else ""
        print(f"\n{title}: {_cut(kind + str(error['message']), 300)}", file=out)
        return True
    if not isinstance(found, dict) or "links" not in found:
        print(f"\n{title}: returned {_cut(repr(found))}, expected a Topology", file=out)
        return True
    print(f"\n{title}:", file=out)
    names = [*found["gpus"], *found["nics"]]
    shown = [_cut(str(name)) for name in names[:MOST_DEVICES]]
    kinds = {(a, b): str(kind) for a, b, kind in found["links"]}
    cpus, numas, cards = (found[key] for key in ("cpu_affinity", "numa_affinity", "nic_names"))
    rows = [
        [
            label,
            *(_cut(kinds.get((name, other), "?"), 8) for other in names[:MOST_DEVICES]),
            _spans(cpus.get(name)),
            _spans(numas.get(name)),
            _cut(str(cards.get(name, "-"))),
        ]
        for label, name in zip(shown, names[:MOST_DEVICES], strict=True)
    ]
    _table(["", *shown, "CPUs", "NUMA", "card"], rows, out)
    if len(names) > MOST_DEVICES:
        print(f"(and {len(names) - MOST_DEVICES} more)", file=out)
    return False


def _cut(text: str, most: int = 40) -> str:
    """One line, and not longer than `most`."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _spans(cells: list[Any] | None) -> str:
    """Numbers as ranges: [0, 1, 2, 8] → "0-2,8"."""
    spans: list[list[Any]] = []
    for cell in cells or []:
        if spans and isinstance(cell, int) and cell - 1 == spans[-1][1]:
            spans[-1][1] = cell
        else:
            spans.append([cell, cell])
    return _cut(",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans)) or "-"


def _print_links(links: Links, out: TextIO) -> None:
    print(file=out)
    if links.memory_copy is not None:
        print(f"memory copy, one core: {rate_text(links.memory_copy)}", file=out)
    if links.gloo_latency is not None:
        microseconds = links.gloo_latency * 1e6
        print(f"gloo between processes, one byte: {microseconds:.0f} µs one way", file=out)
    for name, matrix in links.matrices.items():
        print(f"\n{name}, from row to column:", file=out)
        labels = links.labels[name]
        rows = [
            [label, *("-" if rate is None else rate_text(rate) for rate in row)]
            for label, row in zip(labels, matrix, strict=True)
        ]
        _table(["", *labels], rows, out)
    for note in links.notes:
        print(f"note: {note}", file=out)


def rate_text(rate: float) -> str:
    """Bytes/s for people, three figures."""
    for scale, unit in ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")):
        if rate >= scale:
            return f"{rate / scale:.3g} {unit}"
    return f"{rate:.3g} B/s"


def _table(head: list[str], rows: list[list[str]], out: TextIO) -> None:
    if not rows:
        return
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    print(file=out)
    for row in [head, *rows]:
        cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip(), file=out)
