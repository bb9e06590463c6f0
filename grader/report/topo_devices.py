"""This machine's CPUs, NUMA nodes, GPUs and network cards, as the kernel and NVML tell of them.

Everything is read from /sys and /proc, below a folder that tests may replace; NVML (the package
`pynvml`) adds names and NVLinks where it is installed. What cannot be read is left out or "?".
"""

from __future__ import annotations

import itertools
import os
import platform
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,}:[0-9a-f]{2}")
_VENDORS = {"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel"}


@dataclass
class NumaNode:
    """A NUMA node: its cores as the kernel lists them ("0-3,8-11"), its memory in bytes."""

    number: int
    cpus: str
    memory_bytes: int = 0


@dataclass
class Device:
    """A GPU or a network card.

    bus: host bridge, bridges and the device itself, from the root; () where it is on no PCI bus.
    numa: its node, -1 where the kernel does not say. link: of PCI Express, "16.0 GT/s x16".
    """

    name: str
    kind: str
    what: str
    bus: tuple[str, ...] = ()
    numa: int = -1
    link: str = ""
    details: dict[str, str] = field(default_factory=dict)


@dataclass
class Machine:
    """What was found. pairs: (a, b) → how two devices are linked. notes: what could not be read."""

    cpu: str
    cores: int
    numa: list[NumaNode]
    devices: list[Device]
    pairs: dict[tuple[str, str], str]
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        """As JSON holds it."""
        plain = asdict(self)
        plain["pairs"] = [[a, b, kind] for (a, b), kind in self.pairs.items()]
        return plain


def discover(root: Path = Path("/")) -> Machine:
    """Look at the machine whose /sys and /proc lie below `root`. Raises nothing."""
    notes: list[str] = []
    gpus = _tried(notes, "GPUs", lambda: _gpus(root), [])
    cards = _tried(notes, "network cards", lambda: _cards(root), [])
    devices = [*gpus, *cards]
    pairs = {(a.name, b.name): nearness(a, b) for a in devices for b in devices if a is not b}
    if root == Path("/"):
        _tried(notes, "NVML", lambda: _ask_nvml(gpus, pairs, notes), None)
    if not gpus:
        notes.append("no GPU here")
    return Machine(
        _tried(notes, "CPU", lambda: _cpu_name(root), "?"),
        os.cpu_count() or 1,
        _tried(notes, "NUMA nodes", lambda: _numa(root), []),
        devices,
        pairs,
        notes,
    )


def nearness(a: Device, b: Device) -> str:
    """How far two devices are, in the marks of `nvidia-smi topo -m`, from their places on PCI."""
    if not a.bus or not b.bus:
        return "?"
    steps = zip(a.bus, b.bus, strict=False)
    shared = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], steps))
    if shared == 0:
        return "NODE" if a.numa == b.numa >= 0 else "SYS"
    if shared == 1:
        return "PHB"
    # Below a common switch: its downstream ports on either side count, two at most for one switch.
    bridges = len(a.bus) + len(b.bus) - 2 * shared - 2
    return "PIX" if bridges <= 2 else "PXB"


def _tried(notes: list[str], what: str, read: Callable[[], Any], otherwise: Any) -> Any:
    """What `read` returns; a machine is never the reason for a traceback."""
    try:
        return read()
    except Exception as error:
        notes.append(f"{what}: {type(error).__name__}: {error}")
        return otherwise


def _text(path: Path, otherwise: str = "") -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return otherwise


def _cpu_name(root: Path) -> str:
    for line in _text(root / "proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "cpu model"):
            return value.strip()
    return platform.processor() or platform.machine()


def _numa(root: Path) -> list[NumaNode]:
    found = []
    for folder in (root / "sys/devices/system/node").glob("node[0-9]*"):
        memory = re.search(r"MemTotal:\s+(\d+) kB", _text(folder / "meminfo"))
        nbytes = int(memory[1]) * 1024 if memory else 0
        found.append(NumaNode(int(folder.name[4:]), _text(folder / "cpulist", "?"), nbytes))
    return sorted(found, key=lambda node: node.number)


def _gpus(root: Path) -> list[Device]:
    """Display and 3D controllers with a driver for computing, by address."""
    found: list[Device] = []
    for folder in sorted((root / "sys/bus/pci/devices").glob("*")):
        vendor = _VENDORS.get(_text(folder / "vendor"))
        if not _text(folder / "class").startswith("0x03") or vendor is None:
            continue
        if vendor == "Intel" and not (folder / "drm").is_dir():
            continue
        what = f"{vendor} {_text(folder / 'device')}"
        found.append(_device(f"GPU{len(found)}", "gpu", what, folder))
    return found


def _cards(root: Path) -> list[Device]:
    """Interfaces with hardware behind them, and the InfiniBand devices of the same hardware."""
    found: list[Device] = []
    for folder in sorted((root / "sys/class/net").glob("*")):
        if not (folder / "device").exists():
            continue
        details = {"state": _text(folder / "operstate", "?"), "mtu": _text(folder / "mtu", "?")}
        speed = _text(folder / "speed", "-1")
        details["speed"] = f"{speed} Mb/s" if speed.isdigit() else "unknown"
        device = _device(folder.name, "nic", "network card", folder / "device")
        device.details = details
        for port in sorted((folder / "device/infiniband").glob("*/ports/*")):
            device.details[f"{port.parent.parent.name} port {port.name}"] = _text(port / "rate")
        found.append(device)
    for folder in sorted((root / "sys/class/infiniband").glob("*")):
        if any(folder.name in key.split() for each in found for key in each.details):
            continue
        device = _device(folder.name, "nic", "InfiniBand", folder / "device")
        for port in sorted((folder / "ports").glob("*")):
            device.details[f"port {port.name}"] = _text(port / "rate", "?")
        found.append(device)
    return found


def _device(name: str, kind: str, what: str, folder: Path) -> Device:
    place = folder.resolve()
    parts = [p for p in place.parts if _ADDRESS.fullmatch(p) or _HOST_BRIDGE.fullmatch(p)]
    own = place
    while own.parent != own and not _ADDRESS.fullmatch(own.name):
        own = own.parent
    if not parts:
        own = place
    speed, width = _text(own / "current_link_speed"), _text(own / "current_link_width")
    link = f"{speed.removesuffix(' PCIe')} x{width}" if speed and width not in ("", "0") else ""
    numa = _text(own / "numa_node", "-1")
    return Device(name, kind, what, tuple(parts), int(numa), link)


def _ask_nvml(gpus: list[Device], pairs: dict[tuple[str, str], str], notes: list[str]) -> None:
    """Names, memory, and NVLinks between GPUs, where the driver's library can be asked."""
    try:
        nvml = import_module("pynvml")
        nvml.nvmlInit()
    except Exception as error:
        if any(gpu.what.startswith("NVIDIA") for gpu in gpus):
            notes.append(f"NVML cannot be asked ({type(error).__name__}: {error})")
        return
    try:
        by_address = {gpu.bus[-1].lower(): gpu for gpu in gpus if gpu.bus}
        handles: dict[str, Any] = {}
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            gpu = by_address.get(_address(nvml.nvmlDeviceGetPciInfo(handle).busId))
            if gpu is None:
                continue
            gpu.what = _decoded(nvml.nvmlDeviceGetName(handle))
            gpu.details["memory"] = f"{nvml.nvmlDeviceGetMemoryInfo(handle).total / 2**30:.0f} GiB"
            handles[gpu.name] = handle
        for name, handle in handles.items():
            counts = _nvlinks(nvml, handle, by_address)
            switch = counts.pop("switch", 0)
            for other in handles:
                bonded = counts.get(other, 0) or switch
                if other != name and bonded:
                    pairs[name, other] = f"NV{bonded}"
    finally:
        nvml.nvmlShutdown()


def _nvlinks(nvml: Any, handle: Any, by_address: dict[str, Device]) -> dict[str, int]:
    """Active links of a GPU: to other GPUs by name, and to an NVSwitch ("switch")."""
    counts: dict[str, int] = {}
    for link in range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", 18)):
        try:
            if not nvml.nvmlDeviceGetNvLinkState(handle, link):
                continue
            remote = nvml.nvmlDeviceGetNvLinkRemotePciInfo_v2(handle, link).busId
        except nvml.NVMLError:
            continue
        peer = by_address.get(_address(remote))
        name = peer.name if peer else "switch"
        counts[name] = counts.get(name, 0) + 1
    return counts


def _address(bus_id: bytes | str) -> str:
    """NVML's "00000000:1B:00.0" as /sys writes it: "0000:1b:00.0"."""
    text = _decoded(bus_id).lower()
    domain, _, rest = text.partition(":")
    return f"{domain[-4:]}:{rest}"


def _decoded(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
