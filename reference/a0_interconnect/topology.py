"""One machine: reading what `nvidia-smi topo -m` prints, placing ranks, finding a ring of GPUs.

Sources: the legend that `nvidia-smi topo -m` prints below its matrix; Harvey, Ladner, Lovász and
Tamir, "Semi-matchings for bipartite graphs and load balancing", 2003 (NICs); Held and Karp, "A
dynamic programming approach to sequencing problems", 1962 (the ring); Jeaugey, "NCCL 2.0", 2017
(why rings follow the topology).
"""

from __future__ import annotations

# BEGIN SOLUTION
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

# END SOLUTION
from .given import Binding, Topology

# BEGIN SOLUTION
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\([A-Z0-9]|\[[0-9;]*m|\x0f")
_KIND = r"(?:X|NV\d+|PIX|PXB|PHB|NODE|SYS)"
_AFFINITY_COLUMNS = re.compile(r"(?:CPU|NUMA)\s+Affinity|GPU\s+NUMA\s+ID")
_NUMBERS = re.compile(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*")
_END_OF_MATRIX = re.compile(r"(?:NIC\s+)?Legend:|^[ \t]*X[ \t]+=[ \t]+Self", re.MULTILINE)
_MOST_LINES = 8  # that a row may be wrapped into

# Near to far; bonded NVLinks come before all of them, the more the better.
_NEAR_TO_FAR = ("PIX", "PXB", "PHB", "NODE", "SYS")


@dataclass(frozen=True)
class _Header:
    """The matrix's first row: its place in the text, devices, and columns of affinities."""

    begin: int
    end: int
    devices: tuple[str, ...]
    affinities: tuple[str, ...]


@dataclass
class _Row:
    """One device's cells, and the numbers after them; `whole` unless some of those lack."""

    kinds: list[str]
    affinities: list[str]
    whole: bool


class _Text:
    """A text without colours, and errors that name its lines."""

    def __init__(self, text: str) -> None:
        self.text = _ANSI.sub("", text.replace("\r\n", "\n"))

    def error(self, place: int, problem: str) -> ValueError:
        number = self.text.count("\n", 0, place) + 1
        line = self.text.split("\n")[number - 1].strip()
        return ValueError(f"line {number}: {problem}: {line[:120]!r}")


def _unwrapped(text: str) -> Iterator[tuple[int, str]]:
    """(lines used, text): the first lines of `text` as one, however they were wrapped.

    A terminal breaks a line anywhere, a mail programme at blanks; both ways are tried at every
    break. Most lines first: what follows a row and does not belong to it will not fit.
    """
    lines = [line for line in text.split("\n") if line.strip()][:_MOST_LINES]
    for used in range(len(lines), 0, -1):
        for joints in itertools.product((" ", ""), repeat=used - 1):
            yield used, "".join(map("".join, zip(lines, (*joints, ""), strict=False)))


def _find_header(source: _Text) -> _Header:
    text = source.text
    first_row = re.search(rf"(GPU\d+)\s+{_KIND}(?=\s|$)", text)
    if first_row is not None:
        # The header stands before the first row; "GPU…" may occur in a preamble, too.
        for start in re.finditer(r"GPU\d+", text[: first_row.start()]):
            region = text[start.start() : first_row.start()]
            total = sum(1 for line in region.split("\n") if line.strip())
            for used, line in _unwrapped(region):
                header = _read_header(line) if used == total else None
                if header is not None and first_row[1] in header[0]:
                    return _Header(start.start(), first_row.start(), *header)
    gpu = re.search(r"GPU\d+", text)
    raise source.error(
        gpu.start() if gpu else 0,
        "no topology matrix here: expected a header that begins with GPU0, then a row per GPU",
    )


def _read_header(line: str) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """(devices, affinity columns) if the line is a header."""
    first = _AFFINITY_COLUMNS.search(line)
    devices, rest = (line[: first.start()], line[first.start() :]) if first else (line, "")
    names = re.sub(r"(?<=\S)(?=(?:GPU|NIC)\d)", " ", devices).split()
    sound = all(re.fullmatch(r"[A-Za-z][A-Za-z_.:-]*\d[\w.:-]*", name) for name in names)
    if not sound or len(set(names)) < len(names) or _AFFINITY_COLUMNS.sub("", rest).strip():
        return None
    return tuple(names), tuple(" ".join(each.split()) for each in _AFFINITY_COLUMNS.findall(rest))


def _read_row(line: str, header: _Header, name: str) -> _Row | None:
    """The cells of a row after its name, if there are enough, each is a kind, X stands where the
    row meets itself, and all that follows is numbers."""
    cells = re.sub(r",\s+", ",", line).split()
    count = len(header.devices)
    kinds, rest = cells[:count], cells[count:]
    own = header.devices.index(name)
    if len(kinds) < count or not all(re.fullmatch(_KIND, kind) for kind in kinds):
        return None
    if any((kind == "X") != (place == own) for place, kind in enumerate(kinds)):
        return None
    if not all(cell == "N/A" or (_NUMBERS.fullmatch(cell) and _numbers(cell)) for cell in rest):
        return None
    return _Row(kinds, rest, not name.startswith("GPU") or len(rest) == len(header.affinities))


def _read_wrapped_row(text: str, header: _Header, name: str) -> _Row | None:
    """As `_read_row`, of a row in several lines. Whole rows are preferred."""
    partial = None
    for _, line in _unwrapped(text):
        row = _read_row(line, header, name)
        if row is not None and row.whole:
            return row
        partial = row or partial
    if partial is not None and text.endswith("\n"):
        # Cells that are there and empty count, too.
        partial.whole = text.count("\t") >= len(header.devices) + len(header.affinities)
    return partial


def _numbers(cell: str) -> tuple[int, ...]:
    """ "0-2,8" → (0, 1, 2, 8); "N/A" and what was cut off ("6-1") → ()."""
    found: set[int] = set()
    for span in cell.split(",") if cell != "N/A" else ():
        first, _, last = span.partition("-")
        if int(first) > int(last or first):
            return ()
        found.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(found))


def _assembled(
    header: _Header, gpus: tuple[str, ...], rows: dict[str, _Row], legend: str
) -> Topology:
    links: dict[tuple[str, str], str] = {}
    cpus: dict[str, tuple[int, ...]] = dict.fromkeys(gpus, ())
    numas: dict[str, tuple[int, ...]] = dict.fromkeys(gpus, ())
    for name, row in rows.items():
        for other, kind in zip(header.devices, row.kinds, strict=True):
            links[name, other] = kind
            links.setdefault((other, name), kind)
    for gpu in gpus:
        for column, cell in zip(header.affinities, rows[gpu].affinities, strict=False):
            if column == "CPU Affinity":
                cpus[gpu] = _numbers(cell)
            elif column == "NUMA Affinity":
                numas[gpu] = _numbers(cell)
    nics = tuple(name for name in header.devices if name not in gpus)
    for nic in nics:
        links.setdefault((nic, nic), "X")
    told = dict(re.findall(r"(\S+):[ \t]+(\S+)", legend))
    return Topology(gpus, nics, links, cpus, numas, {n: told[n] for n in nics if n in told})


def _nearness(kind: str) -> int:
    """The larger, the nearer and faster."""
    if kind.startswith("NV"):
        return len(_NEAR_TO_FAR) + int(kind[2:])
    return len(_NEAR_TO_FAR) - 1 - _NEAR_TO_FAR.index(kind)


def _nearest_nics(topology: Topology, gpus: Sequence[str]) -> dict[str, str | None]:
    """One of its nearest NICs for each GPU, loads as even as can be.

    GPU after GPU takes the least loaded NIC that it can reach by moving others aside; that keeps
    the loads optimal at every step [Harvey et al. 2003].
    """
    if not topology.nics:
        return dict.fromkeys(gpus)
    near: dict[str, list[str]] = {}
    for gpu in gpus:
        nearness = {nic: _nearness(topology.kind(gpu, nic)) for nic in topology.nics}
        near[gpu] = [nic for nic in topology.nics if nearness[nic] == max(nearness.values())]
    chosen: dict[str, str | None] = {}
    for gpu in gpus:
        came_from: dict[str, str] = dict.fromkeys(near[gpu], gpu)
        queue = list(came_from)
        for nic in queue:
            for other in [each for each, taken in chosen.items() if taken == nic]:
                for free in near[other]:
                    if free not in came_from:
                        came_from[free] = other
                        queue.append(free)
        taken = list(chosen.values())
        target: str | None = min(queue, key=taken.count)
        while target is not None:
            mover = came_from[target]
            left = chosen.get(mover)
            chosen[mover] = target
            target = left
    return chosen


# END SOLUTION


def parse_topology(text: str) -> Topology:
    """Read what `nvidia-smi topo -m` printed.

    The matrix: a header that names GPUs, then network cards (NICs), then the columns "CPU
    Affinity", "NUMA Affinity" and "GPU NUMA ID" as far as the driver has them; a row for each
    device. What people paste is messy, and all of this must be read:

    - cells parted by tabs or by blanks; ANSI codes (drivers underline the header); CRLF;
    - a preamble (a prompt, warnings), and anything after the matrix; no legend;
    - no NUMA column, or no CPU column; lists such as "0-23,48-71" and "0-1"; "N/A";
    - NICs with columns and without rows; cards called "NIC0" or, by old drivers, "mlx5_0";
    - lines glued to the one before ("…\\tN/AGPU1\\tNV2…"), or wrapped into several; 1 GPU, 16 GPUs.

    Args:
        text: the output, as it is.

    Returns:
        Topology; see there.

    Raises:
        ValueError: no matrix, or one that was cut off or damaged: a GPU's row is missing or has too
            few cells. The message holds "line N" (from 1) of the row that is wrong or, where one is
            missing, of the row it should stand before or of the last one. Missing or half NIC rows
            are no error.

    Source: the legend of `nvidia-smi topo -m`.
    """
    # BEGIN SOLUTION
    source = _Text(text)
    header = _find_header(source)
    ending = _END_OF_MATRIX.search(source.text, header.end)
    end = ending.start() if ending else len(source.text)
    names = "|".join(map(re.escape, sorted(header.devices, key=len, reverse=True)))
    starts = list(re.finditer(rf"({names})(?=\s+[XNPS])", source.text[:end][header.end :]))
    gpus = tuple(name for name in header.devices if re.fullmatch(r"GPU\d+", name))
    rows: dict[str, _Row] = {}
    places: dict[str, int] = {}
    for number, start in enumerate(starts):
        name, place = start[1], header.end + start.start()
        last = number + 1 == len(starts)
        stop = end if last else header.end + starts[number + 1].start()
        if name in rows:
            break  # a second matrix
        row = _read_wrapped_row(source.text[header.end + start.end() : stop], header, name)
        if row is None and name in gpus:
            raise source.error(
                place,
                f"the row of {name} is damaged or cut off: expected {len(header.devices)} link "
                f"kinds with X in column {header.devices.index(name) + 1}, then numbers",
            )
        if row is None:
            continue  # half a NIC's
        cut = last and ending is None and not row.whole
        usual = {len(each.affinities) for other, each in rows.items() if other in gpus}
        if cut and name in gpus and usual != {len(row.affinities)}:
            raise source.error(place, f"the row of {name} was cut off before its last columns")
        rows[name], places[name] = row, place
    for gpu in gpus:
        if gpu not in rows:
            after = header.devices[header.devices.index(gpu) :]
            following = [places[name] for name in after if name in places]
            raise source.error(
                min(following, default=max(places.values(), default=header.begin)),
                f"the header names {gpu}, whose row is missing here or was cut off",
            )
    return _assembled(header, gpus, rows, source.text[end:])
    # END SOLUTION


def bind_ranks(topology: Topology, local_world_size: int) -> list[Binding]:
    """Where each rank of this node runs: local rank r on the r-th GPU of the topology.

    - Cores: those of the GPU's CPU affinity. Ranks whose GPUs have the same affinity share its
      cores evenly: all are given away, no two ranks get the same one, and no rank has two more
      than another. Where there are fewer cores than ranks, each rank gets one, and no core serves
      two ranks more than another.
    - NIC: one of the nearest to the GPU (PIX, PXB, PHB, NODE, SYS, near to far), never a farther
      one; among those so chosen that ranks are spread over the NICs as evenly as can be.

    Args:
        topology: of the node.
        local_world_size: ranks on this node, at least 1.

    Returns:
        One `Binding` per local rank.

    Raises:
        ValueError: `local_world_size` below 1, or above the number of GPUs; the message holds both
            numbers.

    Source: the options that MPI launchers offer for binding; Harvey et al. 2003.
    """
    # BEGIN SOLUTION
    if not 1 <= local_world_size <= len(topology.gpus):
        raise ValueError(
            f"local_world_size={local_world_size}: expected 1 to {len(topology.gpus)}, the number "
            f"of GPUs of this machine (one rank per GPU)"
        )
    gpus = topology.gpus[:local_world_size]
    nics = _nearest_nics(topology, gpus)
    sharers: dict[tuple[int, ...], list[str]] = {}
    for gpu in gpus:
        sharers.setdefault(topology.cpu_affinity.get(gpu, ()), []).append(gpu)
    cores: dict[str, tuple[int, ...]] = {}
    for affinity, sharing in sharers.items():
        for place, gpu in enumerate(sharing):
            if len(affinity) >= len(sharing):
                begin, end = (len(affinity) * i // len(sharing) for i in (place, place + 1))
                cores[gpu] = affinity[begin:end]
            else:
                cores[gpu] = (affinity[place % len(affinity)],) if affinity else ()
    return [Binding(gpu, cores[gpu], nics[gpu]) for gpu in gpus]
    # END SOLUTION


def best_ring(topology: Topology) -> list[int]:
    """The best order of the GPUs for a ring, as GPU numbers ("GPU3" is 3).

    Links are compared by kind: NV# by its count, above PIX > PXB > PHB > NODE > SYS. The best ring
    is the one whose slowest link is as fast as can be; among those, with the fewest links of that
    kind; among those, the smallest sequence. It begins with the lowest GPU number and closes from
    the last to the first; of its two directions the smaller sequence counts.

    Args:
        topology: of the machine; its links are the same in both directions. Up to 16 GPUs take
            seconds at most.

    Returns:
        Every GPU's number once. One GPU is a ring of its own.

    Source: Held and Karp 1962; Jeaugey 2017.
    """
    # BEGIN SOLUTION
    gpus = sorted(topology.gpus, key=lambda gpu: int(gpu[3:]))
    numbers = [int(gpu[3:]) for gpu in gpus]
    if len(gpus) < 3:
        return numbers
    speeds = np.array(
        [[_nearness(topology.kind(a, b)) if a != b else -1 for b in gpus] for a in gpus]
    )
    for slowest in sorted(set(speeds[speeds >= 0].tolist()), reverse=True):
        # A step costs 1 if it is of the slowest kind, 0 if faster, and too much if slower.
        cost = np.where(speeds > slowest, 0, np.where(speeds == slowest, 1, _NEVER))
        if all((row < _NEVER).sum() >= 2 for row in cost):
            order = _cheapest_cycle(cost)
            if order is not None:
                return [numbers[place] for place in order]
    raise ValueError("the topology tells of no links between some of its GPUs")
    # END SOLUTION


# BEGIN SOLUTION
_NEVER = 1000


def _cheapest_cycle(cost: np.ndarray) -> list[int] | None:
    """The smallest sequence from 0 through all places and back whose steps cost least in all.

    rest[visited, at]: least cost of visiting all others and returning to 0. None if all cost
    `_NEVER`.
    """
    count = len(cost)
    rest = np.full((1 << count, count), 2 * _NEVER, dtype=np.int32)
    rest[-1] = cost[:, 0]
    visited = np.arange(1, 1 << count, 2)  # 0 always is
    sizes = np.array([int(mask).bit_count() for mask in visited])
    for size in range(count - 1, 0, -1):
        masks = visited[sizes == size]
        for step in range(1, count):
            free = masks[(masks >> step) & 1 == 0]
            onward = rest[free | 1 << step, step]
            rest[free] = np.minimum(rest[free], onward[:, None] + cost[:, step])
    if rest[1, 0] >= _NEVER:
        return None
    order, mask, at = [0], 1, 0
    while len(order) < count:
        step = next(
            step
            for step in range(1, count)
            if not mask >> step & 1
            and cost[at, step] + rest[mask | 1 << step, step] == rest[mask, at]
        )
        order.append(step)
        mask, at = mask | 1 << step, step
    return order


# END SOLUTION
