"""What a machine offers to ranks: its cores, its GPUs, and which of them lie close together.

GPUs are read through NVML, without CUDA: the process that reads them can still fork ranks.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

_LIBRARY: Final = "libnvidia-ml.so.1"
_TEXT_NBYTES: Final = 96
_WORD_BITS: Final = 64


class _PciInfo(ctypes.Structure):
    """nvmlPciInfo_t, as of NVML's v3 interface."""

    _fields_ = (
        ("bus_id_legacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("device_id", ctypes.c_uint),
        ("subsystem_id", ctypes.c_uint),
        ("bus_id", ctypes.c_char * 32),
    )


@dataclass(frozen=True)
class Gpu:
    """One GPU. `cores`: the CPU cores that NVML calls near; empty when it does not know.

    index: its number in the order of PCI addresses, which is CUDA's under
    `CUDA_DEVICE_ORDER=PCI_BUS_ID`. bus_id: "0000:1b:00.0". numa_node: -1 where there is one only.
    """

    index: int
    name: str
    uuid: str
    bus_id: str
    numa_node: int = -1
    cores: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Machine:
    """The cores that this process may use, and the GPUs that it sees, by CUDA's numbers."""

    cores: tuple[int, ...]
    gpus: tuple[Gpu, ...] = ()
    numa: Mapping[int, frozenset[int]] = field(default_factory=dict)


class NvmlError(RuntimeError):
    """NVML is there, but refuses a question; the message names it."""


def _ask(library: Any, name: str, *arguments: Any) -> None:
    code = getattr(library, name)(*arguments)
    if code != 0:
        raise NvmlError(f"{name} returned {code}")


def _text(library: Any, name: str, handle: Any) -> str:
    buffer = ctypes.create_string_buffer(_TEXT_NBYTES)
    _ask(library, name, handle, buffer, ctypes.c_uint(_TEXT_NBYTES))
    return buffer.value.decode("utf-8", errors="replace")


def _near_cores(library: Any, handle: Any, highest: int) -> frozenset[int]:
    words = highest // _WORD_BITS + 1
    mask = (ctypes.c_ulong * words)()
    try:
        _ask(library, "nvmlDeviceGetCpuAffinity", handle, ctypes.c_uint(words), mask)
    except NvmlError:
        return frozenset()  # virtual machines do not always tell
    return frozenset(
        word * _WORD_BITS + bit
        for word in range(words)
        for bit in range(_WORD_BITS)
        if mask[word] >> bit & 1
    )


def _numa_node(bus_id: str, system: Path) -> int:
    try:
        return int((system / "bus/pci/devices" / bus_id / "numa_node").read_text())
    except (OSError, ValueError):
        return -1


def read_gpus(library: Any, highest_core: int, system: Path = Path("/sys")) -> list[Gpu]:
    """All GPUs that NVML knows, in the order of their PCI addresses.

    library: NVML as ctypes loads it. Raises `NvmlError`.
    """
    _ask(library, "nvmlInit_v2")
    try:
        count = ctypes.c_uint()
        _ask(library, "nvmlDeviceGetCount_v2", ctypes.byref(count))
        found = []
        for number in range(count.value):
            handle, pci = ctypes.c_void_p(), _PciInfo()
            _ask(
                library,
                "nvmlDeviceGetHandleByIndex_v2",
                ctypes.c_uint(number),
                ctypes.byref(handle),
            )
            _ask(library, "nvmlDeviceGetPciInfo_v3", handle, ctypes.byref(pci))
            # NVML writes eight digits of the domain, the kernel four.
            bus_id = pci.bus_id.decode().lower()[-12:]
            found.append(
                Gpu(
                    number,
                    _text(library, "nvmlDeviceGetName", handle),
                    _text(library, "nvmlDeviceGetUUID", handle),
                    bus_id,
                    _numa_node(bus_id, system),
                    _near_cores(library, handle, highest_core),
                )
            )
    finally:
        library.nvmlShutdown()
    found.sort(key=lambda gpu: gpu.bus_id)
    return [_renumbered(gpu, index) for index, gpu in enumerate(found)]


def _renumbered(gpu: Gpu, index: int) -> Gpu:
    return Gpu(index, gpu.name, gpu.uuid, gpu.bus_id, gpu.numa_node, gpu.cores)


def visible(gpus: Iterable[Gpu], setting: str | None) -> list[Gpu]:
    """The GPUs that `CUDA_VISIBLE_DEVICES` leaves, by the numbers that CUDA then gives them.

    As CUDA reads it: numbers or the beginnings of UUIDs; the first entry that names no GPU, or
    one a second time, ends the list.
    """
    known = list(gpus)
    if setting is None:
        return known
    chosen: list[Gpu] = []
    for entry in (part.strip() for part in setting.split(",")):
        matching = [
            gpu for gpu in known if entry == str(gpu.index) or (entry and _is_uuid(entry, gpu))
        ]
        if len(matching) != 1 or matching[0] in chosen:
            break
        chosen.append(matching[0])
    return [_renumbered(gpu, index) for index, gpu in enumerate(chosen)]


def _is_uuid(entry: str, gpu: Gpu) -> bool:
    return entry.startswith("GPU-") and gpu.uuid.startswith(entry)


def cores_of(text: str) -> frozenset[int]:
    """A list of cores as the kernel writes it: "0-3,8" is 0, 1, 2, 3, 8."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _numa_nodes(system: Path) -> dict[int, frozenset[int]]:
    nodes: dict[int, frozenset[int]] = {}
    for folder in sorted((system / "devices/system/node").glob("node[0-9]*")):
        try:
            nodes[int(folder.name[4:])] = cores_of((folder / "cpulist").read_text())
        except (OSError, ValueError):
            continue
    return nodes


def read_machine(
    library: Any = None, system: Path = Path("/sys"), *, with_gpus: bool = True
) -> Machine:
    """This machine; without GPUs when NVML is not installed, or not wanted. Raises `NvmlError`."""
    cores = tuple(sorted(os.sched_getaffinity(0)))
    if not with_gpus:
        return Machine(cores, (), _numa_nodes(system))
    if library is None:
        try:
            library = ctypes.CDLL(_LIBRARY)
        except OSError:
            return Machine(cores, (), _numa_nodes(system))
    gpus = read_gpus(library, max(cores), system)
    seen = visible(gpus, os.environ.get("CUDA_VISIBLE_DEVICES"))
    return Machine(cores, tuple(seen), _numa_nodes(system))
