# ruff: noqa: N802 - the names are NVML's
"""Machines that we do not have: NVML as it would answer on them, and their /sys."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Card:
    """A GPU as NVML numbers and describes it. cores: None where the driver does not know."""

    bus: int
    uuid: str
    numa_node: int
    cores: range | None
    name: str = "NVIDIA H100 80GB HBM3"


#: Two sockets of 56 cores, four GPUs on each; NVML does not count them in the order of addresses.
DGX = [
    Card(0x9D, "GPU-e", 1, range(56, 112)),
    Card(0x1B, "GPU-a", 0, range(56)),
    Card(0x43, "GPU-b", 0, range(56)),
    Card(0x52, "GPU-c", 0, range(56)),
    Card(0x61, "GPU-d", 0, range(56)),
    Card(0xC3, "GPU-f", 1, range(56, 112)),
    Card(0xD1, "GPU-g", 1, range(56, 112)),
    Card(0xDF, "GPU-h", 1, range(56, 112)),
]
DGX_NUMA = {0: "0-55", 1: "56-111"}


class FakeNvml:
    """NVML's C interface over a list of cards. broken: name of a function that returns an error."""

    def __init__(self, cards: list[Card], broken: str = "") -> None:
        self._cards = cards
        self._broken = broken
        self.open = 0

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)
        answer = getattr(type(self), "_" + name)

        def function(*arguments: Any) -> int:
            if name == self._broken:
                return 999
            result: int = answer(self, *arguments)
            return result

        return function

    def _nvmlInit_v2(self) -> int:
        self.open += 1
        return 0

    def _nvmlShutdown(self) -> int:
        self.open -= 1
        return 0

    def _nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = len(self._cards)
        return 0

    def _nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> int:
        handle._obj.value = index.value + 1
        return 0

    def _nvmlDeviceGetPciInfo_v3(self, handle: Any, info: Any) -> int:
        info._obj.bus_id = f"00000000:{self._of(handle).bus:02X}:00.0".encode()
        return 0

    def _nvmlDeviceGetName(self, handle: Any, buffer: Any, size: Any) -> int:
        buffer.value = self._of(handle).name.encode()
        return 0

    def _nvmlDeviceGetUUID(self, handle: Any, buffer: Any, size: Any) -> int:
        buffer.value = self._of(handle).uuid.encode()
        return 0

    def _nvmlDeviceGetCpuAffinity(self, handle: Any, words: Any, mask: Any) -> int:
        cores = self._of(handle).cores
        if cores is None:
            return 3  # not supported
        bits = ctypes.sizeof(ctypes.c_ulong) * 8
        for core in cores:
            if core // bits < words.value:
                mask[core // bits] |= 1 << core % bits
        return 0

    def _of(self, handle: Any) -> Card:
        return self._cards[handle.value - 1]


def write_sys(folder: Path, cards: list[Card], numa: dict[int, str]) -> Path:
    """A /sys with these devices and nodes."""
    for card in cards:
        device = folder / f"bus/pci/devices/0000:{card.bus:02x}:00.0"
        device.mkdir(parents=True)
        (device / "numa_node").write_text(f"{card.numa_node}\n")
    for node, cores in numa.items():
        place = folder / f"devices/system/node/node{node}"
        place.mkdir(parents=True)
        (place / "cpulist").write_text(cores + "\n")
    return folder
