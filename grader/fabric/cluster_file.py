"""A cluster described in a small TOML file.

name = "two old nodes"
nodes = 2
devices_per_node = 8
nics_per_node = 1         # left out: one per device
flops = 100e12            # per device and second
memory_bandwidth = 2e12   # bytes/s
switch_adds = false       # the switch inside a node reduces; network_adds: those between nodes

[intra]                   # a device's port, inside a node
latency = 3e-6            # seconds
bandwidth = 25e9          # bytes/s, one direction

[inter]                   # between nodes, per NIC; left out: as intra
latency = 6e-6
bandwidth = 12.5e9

[tree]                    # may be left out: PCIe switches and CPUs instead of one switch
numa_nodes = 2
switches = 2              # below each CPU; left out: devices at the CPU
staged = true             # devices reach each other through host memory only
uplink = { latency = 0, bandwidth = 25e9 }
socket = { latency = 5e-7, bandwidth = 40e9 }
memory = { latency = 2e-5, bandwidth = 80e9 }

[network]                 # may be left out: leaf, spine and core switches between the nodes
nodes_per_leaf = 16
spines = 8                # of a pod; 16 × 12.5 over 8 × 12.5: oversubscribed 2 : 1
uplink = { latency = 5e-7, bandwidth = 12.5e9 }
rails = false             # card i of every node at a leaf of its own
leaves_per_pod = 4        # left out: one pod, no core
cores_per_spine = 4
core = { latency = 5e-7, bandwidth = 12.5e9 }

Or a preset and what is to be different: preset = "dgx-h100", nodes = 4, nics_per_node = 1.
"""

from __future__ import annotations

import tomllib
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from grader.fabric.cluster import Cluster
from grader.fabric.presets import preset
from grader.fabric.topology import LinkSpec, Network, PcieTree

T = TypeVar("T")

_LINKS = ("intra", "inter", "uplink", "socket", "memory", "core")
_PARTS: dict[str, type] = {"tree": PcieTree, "network": Network}
_COUNTS = (
    "nodes", "devices_per_node", "nics_per_node", "numa_nodes", "switches", "nodes_per_leaf",
    "spines", "leaves_per_pod", "cores_per_spine",
)  # fmt: skip
_RATES = ("flops", "memory_bandwidth", "adding_bandwidth")
_FLAGS = ("switch_adds", "shared_port", "network_adds", "staged", "rails")


def read_cluster(path: Path) -> Cluster:
    """The cluster that the file describes.

    Raises ValueError, with the file and the key that is wrong, when it describes none.
    """
    try:
        described = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read the cluster file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {error}") from None
    base = described.pop("preset", None)
    given = _arguments(path, Cluster, described, "")
    if base is not None:
        return _from_preset(path, base, given)
    given = {"name": path.stem, "nodes": 1} | given
    if "intra" in given:
        given.setdefault("inter", given["intra"])
    return _made(path, Cluster, given, "")


def _from_preset(path: Path, base: object, given: dict[str, Any]) -> Cluster:
    """A preset with some of its fields replaced."""
    if not isinstance(base, str):
        raise ValueError(f"{path}: preset must be text, got {base!r}")
    try:
        start = preset(base, 1)
        return replace(start, **({"name": path.stem} | given))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _arguments(path: Path, kind: type, described: dict[str, Any], where: str) -> dict[str, Any]:
    """The fields of `kind` that the file gives, checked and built."""
    known = [field.name for field in fields(kind)]
    given: dict[str, Any] = {}
    for key, value in described.items():
        if key not in known:
            names = ", ".join(known if where else [*known, "preset"])
            raise ValueError(f"{path}: unknown key {where + key!r}; known: {names}")
        if key in _LINKS:
            given[key] = _link(path, where + key, value)
        elif key in _PARTS:
            if not isinstance(value, dict):
                raise ValueError(f"{path}: [{key}] must be a table")
            inside = f"{key}."
            part = _arguments(path, _PARTS[key], value, inside)
            given[key] = _made(path, _PARTS[key], part, inside)
        else:
            given[key] = _plain(path, where + key, value)
    # What a file leaves out and the class has no default for.
    if kind is PcieTree:
        given.setdefault("switches", None)
    return given


def _link(path: Path, name: str, value: object) -> LinkSpec:
    if not isinstance(value, dict) or set(value) != {"latency", "bandwidth"}:
        raise ValueError(f"{path}: [{name}] must hold exactly latency and bandwidth")
    for key, number in value.items():
        _number(path, f"{name}.{key}", number)
    return _made(path, LinkSpec, value, f"{name}.")


def _number(path: Path, name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{path}: {name} must be a number, got {value!r}")


def _plain(path: Path, name: str, value: object) -> object:
    key = name.rsplit(".", 1)[-1]
    if key in _RATES:
        _number(path, name, value)
    if key in _COUNTS and type(value) is not int:
        raise ValueError(f"{path}: {name} must be a whole number, got {value!r}")
    if key in _FLAGS and type(value) is not bool:
        raise ValueError(f"{path}: {name} must be true or false, got {value!r}")
    if key == "name" and not isinstance(value, str):
        raise ValueError(f"{path}: {name} must be text, got {value!r}")
    return value


def _made(path: Path, kind: type[T], arguments: dict[str, Any], where: str) -> T:
    """An instance; what is wrong with it is told by the names that the file has for things."""
    for field in fields(kind):  # type: ignore[arg-type]
        if field.default is MISSING and field.name not in arguments:
            raise ValueError(f"{path}: {where + field.name!r} is missing")
    try:
        return kind(**arguments)
    except ValueError as error:
        # The classes' messages begin with the field that is wrong, or speak of several.
        key = str(error).split(" ", 1)[0]
        part = where if key in arguments or not where else f"[{where[:-1]}]: "
        raise ValueError(f"{path}: {part}{error}") from None
