"""A cluster described in a small TOML file.

name = "two old nodes"
nodes = 2
devices_per_node = 4
nics_per_node = 1
flops = 100e12            # per device and second
memory_bandwidth = 2e12   # bytes/s

[intra]                   # inside a node
latency = 3e-6            # seconds
bandwidth = 25e9          # bytes/s, one direction

[inter]                   # between nodes, per NIC
latency = 6e-6
bandwidth = 12.5e9
"""

from __future__ import annotations

import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from grader.fabric.cluster import Cluster, LinkSpec

T = TypeVar("T")
_KNOWN = tuple(field.name for field in fields(Cluster))


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
    unknown = sorted(set(described) - set(_KNOWN))
    if unknown:
        raise ValueError(f"{path}: unknown key {unknown[0]!r}; known: {', '.join(_KNOWN)}")
    given: dict[str, Any] = {"name": path.stem, "nodes": 1} | described
    given.setdefault("inter", given.get("intra"))
    for name in ("devices_per_node", "intra"):
        if name not in given:
            raise ValueError(f"{path}: {name!r} is missing")
    for name in ("intra", "inter"):
        link = given[name]
        if not isinstance(link, dict) or set(link) != {"latency", "bandwidth"}:
            raise ValueError(f"{path}: [{name}] must hold exactly latency and bandwidth")
        given[name] = _made(path, LinkSpec, link)
    for name in ("nodes", "devices_per_node", "nics_per_node"):
        if name in given and type(given[name]) is not int:
            raise ValueError(f"{path}: {name} must be a whole number, got {given[name]!r}")
    return _made(path, Cluster, given)


def _made(path: Path, kind: type[T], arguments: dict[str, Any]) -> T:
    try:
        return kind(**arguments)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
