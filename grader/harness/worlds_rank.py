"""What runs in each process of a real world: join the others, then run the target.

The target is a function of one payload, as in a worker; it asks `current()` where it runs.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, PrefixStore, Store, TCPStore

from grader.harness import clocks, worker
from grader.harness.worlds_group import BACKEND, Rules, register

_T = TypeVar("_T")


@dataclass(frozen=True)
class RealRank:
    """Where the calling code runs. device: "cpu" or "cuda:N". store: shared by all ranks."""

    rank: int
    world_size: int
    local_rank: int
    device: str
    store: Store
    rules: Rules

    def call(self, function: Callable[..., _T], *arguments: Any, **options: Any) -> _T:
        """Run code under test: the rules of its task apply. Raises `ForbiddenCall`."""
        with self.rules.applied():
            return function(*arguments, **options)


_current: RealRank | None = None


def current() -> RealRank:
    """The rank that runs in this process. Raises RuntimeError outside a world."""
    if _current is None:
        raise RuntimeError("this process is not a rank of a real world")
    return _current


def run(payload: dict[str, Any]) -> Any:
    """Join the world that `payload` describes and run its target (see `worlds.World`)."""
    join(payload)
    return worker.resolve(payload["target"])(payload["payload"])


def join(description: dict[str, Any]) -> RealRank:
    """Be a rank: variables as `torchrun` sets them, the device, the default process group."""
    global _current
    place, rank = description["place"], description["rank"]
    if description["timed"]:
        clocks.hurry()  # before any thread begins
    world_size = description["world_size"]
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(world_size),
        LOCAL_RANK=str(place["local_rank"]),
        LOCAL_WORLD_SIZE=str(description["local_world_size"]),
        GROUP_RANK=str(description["node"]),
        CUDA_DEVICE_ORDER="PCI_BUS_ID",
    )
    device = place["device"]
    if device != "cpu":
        torch.cuda.set_device(device)
    store = _store(description)
    rules = Rules(description["allow"])
    backend = choose_backend(device, place["shared"], description["allow"])
    if backend == "nccl" and description["allow"] is not None:
        rules.watch_functions()
    if backend == BACKEND:
        register(rules, staged=place["shared"])
    options: dict[str, Any] = {}
    if backend == "nccl":
        options["device_id"] = torch.device(device)
    dist.init_process_group(
        backend,
        store=PrefixStore("world", store),
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=description["timeout"]),
        **options,
    )
    shared = PrefixStore("shared", store)
    _current = RealRank(rank, world_size, place["local_rank"], device, shared, rules)
    return _current


def choose_backend(device: str, shared: bool, allow: str | None) -> str:
    """The backend of a rank: gloo on the CPU, NCCL with a GPU of its own, else ours over gloo."""
    if shared:
        return BACKEND
    if device == "cpu":
        return "gloo" if allow is None else BACKEND
    return "nccl"


def _store(description: dict[str, Any]) -> Store:
    where, world_size = description["store"], description["world_size"]
    timeout = timedelta(seconds=description["timeout"])
    if where["kind"] == "file":
        # All ranks are here: no need to find out what this machine is called.
        if any(name == "lo" for _, name in socket.if_nameindex()):
            os.environ["GLOO_SOCKET_IFNAME"] = "lo"
            os.environ["NCCL_SOCKET_IFNAME"] = "lo"
        store: Store = FileStore(where["path"], world_size)
    else:
        tcp = TCPStore(
            where["host"], where["port"], is_master=False, wait_for_workers=False, timeout=timeout
        )
        store = PrefixStore(where["prefix"], tcp)
    store.set_timeout(timeout)
    return store
