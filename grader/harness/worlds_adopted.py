"""Worlds on several machines: the processes that `torchrun` started become their hosts.

On one machine nothing needs to be adopted: worlds are forked here. On several, start the same
command on all of them, as one starts any torch program:

    torchrun --nnodes 2 --node-rank 0 --nproc-per-node 8 --master-addr HOST --master-port 29500 \\
        -m grader check a3 --device cuda                      (--node-rank 1 on the other machine)
    srun --nodes 2 --ntasks-per-node 1 torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d \\
        --rdzv-id "$SLURM_JOB_ID" --rdzv-endpoint HOST:29500 -m grader check a3 --device cuda

The process with rank 0 is the examiner. On each machine the one with local rank 0 is its host: it
forks the ranks of every world, and watches them as on one machine; the others stand by. Orders and
replies travel through torchrun's store, as data, never as pickles.
"""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any, Final, Literal

from grader.harness import watchdog
from grader.harness.client import WorkerServer
from grader.harness.codec import decode, encode
from grader.harness.reply import Limits, Reply, raised_error
from grader.harness.worlds import Meeting, World, WorldOptions, run_world
from grader.harness.worlds_reply import WorldReply

_LOOK_SECONDS: Final = 0.2
_BEYOND_SECONDS: Final = 30.0
_IDLE: Final = timedelta(days=2)
_HEADER: Final = struct.Struct("!Q")

Role = Literal["examiner", "host", "bystander"]


@dataclass(frozen=True)
class Adoption:
    """What `torchrun` told this process; of several machines only."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    node: int
    host: str
    port: int

    @property
    def role(self) -> Role:
        """What this process is to do."""
        if self.rank == 0:
            return "examiner"
        return "host" if self.local_rank == 0 else "bystander"

    @property
    def nodes(self) -> int:
        """How many machines there are."""
        return self.world_size // self.local_world_size


def adoption(environment: Mapping[str, str] | None = None) -> Adoption | None:
    """What `torchrun` (or whoever sets the same variables) started; None on a single machine.

    Raises ValueError when the machines run different numbers of processes.
    """
    given = os.environ if environment is None else environment
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    if any(name not in given for name in names):
        return None
    rank, size, local_rank, local_size = (int(given[name]) for name in names[:4])
    if size == local_size:
        return None
    if size % local_size or rank % local_size != local_rank:
        raise ValueError(
            f"rank {rank} of {size} is number {local_rank} of {local_size} on its machine: every "
            f"machine must run as many processes, numbered machine by machine"
        )
    host, port = given["MASTER_ADDR"], int(given["MASTER_PORT"])
    return Adoption(rank, size, local_rank, local_size, rank // local_size, host, port)


def _packed(value: Any) -> bytes:
    tree, blob = encode(value)
    text = json.dumps(tree).encode()
    return _HEADER.pack(len(text)) + text + blob


def _unpacked(data: bytes) -> Any:
    (length,) = _HEADER.unpack_from(data)
    middle = _HEADER.size + length
    return decode(json.loads(data[_HEADER.size : middle]), data[middle:])


def _reply_data(reply: Reply) -> dict[str, Any]:
    data = {**vars(reply), "error": None}
    if reply.error is not None:
        error = asdict(reply.error)
        error["frames"] = [[f["file"], f["line"], f["function"]] for f in error["frames"]]
        error["bases"] = list(error["bases"])
        data["error"] = error
    return data


def _reply(data: dict[str, Any]) -> Reply:
    error = data["error"]
    return Reply(**{**data, "error": None if error is None else raised_error(error)})


class AdoptedMachines:
    """All machines, as the processes on them see each other. server: of this machine."""

    def __init__(self, adopted: Adoption, server: WorkerServer | None) -> None:
        from torch._C._distributed_c10d import PrefixStore
        from torch.distributed.rendezvous import rendezvous

        self.adopted = adopted
        self._server = server
        store, _, _ = next(iter(rendezvous("env://")))
        self._store = PrefixStore("tinyparallel", store)
        self._store.set_timeout(_IDLE)
        self._number = 0

    def _set(self, key: str, data: bytes) -> None:
        self._store.set(key, data)  # type: ignore[arg-type]  # it takes bytes too

    # -- the examiner

    def run_world(
        self,
        target: str,
        payloads: Sequence[Any],
        *,
        limits: Limits | None = None,
        options: WorldOptions | None = None,
    ) -> WorldReply:
        """As `worlds.run_world`, with the ranks spread over the machines in torchrun's order.

        Raises ValueError for more ranks than torchrun started.
        """
        if len(payloads) > self.adopted.world_size:
            raise ValueError(
                f"{len(payloads)} ranks, but torchrun started {self.adopted.world_size} processes"
            )
        limits, options = limits or Limits(), options or WorldOptions()
        self._number += 1
        each = self.adopted.local_world_size
        shares = [list(payloads[at : at + each]) for at in range(0, len(payloads), each)]
        for node, share in enumerate(shares[1:], start=1):
            order = {
                "target": target,
                "payloads": share,
                "world_size": len(payloads),
                "limits": asdict(limits),
                "device": options.device,
                "allow": options.allow,
            }
            self._set(f"order/{self._number}/{node}", _packed(order))
        begin = time.monotonic()
        here = self._here(target, shares[0], len(payloads), limits, options)
        replies, blamed = list(here.replies), [] if here.rank is None else [here.rank]
        for node, share in enumerate(shares[1:], start=1):
            patience = begin + limits.wall_seconds + _BEYOND_SECONDS - time.monotonic()
            there, culprit = self._from(node, len(share), max(patience, 1.0))
            blamed += [] if culprit is None else [len(replies) + culprit]
            replies += there
        return self._judged(replies, blamed, each, time.monotonic() - begin)

    def close(self) -> None:
        """Let the hosts on the other machines end."""
        for node in range(1, self.adopted.nodes):
            self._set(f"order/{self._number + 1}/{node}", _packed(None))
        self._set("end", b"1")

    def _from(self, node: int, count: int, patience: float) -> tuple[list[Reply], int | None]:
        """What a machine's ranks came to, and which of them it blames, by its own numbers."""
        key = f"reply/{self._number}/{node}"
        try:
            self._store.wait([key], timedelta(seconds=patience))
        except RuntimeError:
            detail = f"machine {node} did not answer within {patience:.0f} seconds"
            return [Reply("died", detail=detail)] * count, 0
        answer = _unpacked(self._store.get(key))
        return [_reply(data) for data in answer["replies"]], answer["rank"]

    def _judged(
        self, replies: list[Reply], blamed: list[int], each: int, seconds: float
    ) -> WorldReply:
        failed = f"failed/{self._number}"
        if self._store.check([failed]):  # the machine where it began speaks first
            node = int(self._store.get(failed))
            blamed.sort(key=lambda rank: rank // each != node)
        others = [rank for rank in range(len(replies)) if rank not in blamed]
        cause = watchdog.first_cause(replies, blamed + others)
        if cause is None:
            return WorldReply("ok", tuple(replies), seconds=seconds)
        detail = f"rank {cause}: {replies[cause].detail}"
        return WorldReply(replies[cause].status, tuple(replies), cause, detail, seconds)

    # -- every host

    def _here(
        self,
        target: str,
        payloads: Sequence[Any],
        world_size: int,
        limits: Limits,
        options: WorldOptions,
    ) -> WorldReply:
        """This machine's part of world `self._number`."""
        assert self._server is not None
        node, number = self.adopted.node, self._number
        where = {
            "kind": "tcp",
            "host": self.adopted.host,
            "port": self.adopted.port,
            "prefix": f"tinyparallel/world/{number}",
        }
        first = node * self.adopted.local_world_size
        meeting = Meeting(world_size, first, node, where)
        return run_world(
            self._server,
            target,
            payloads,
            limits=limits,
            options=replace(options, meeting=meeting),
            watch=self._watcher(f"failed/{number}"),
        )

    def _watcher(self, failed: str) -> Callable[[World], None]:
        """Tells the other machines when a rank fails here, and the other way round."""
        told, due = False, 0.0

        def watch(world: World) -> None:
            nonlocal told, due
            if world.failing and not told:
                told = True
                self._store.compare_set(failed, "", str(self.adopted.node))
            now = time.monotonic()
            if not told and now >= due:
                due = now + _LOOK_SECONDS
                if self._store.check([failed]):
                    told = True
                    world.stop("ended with its world, on another machine")

        return watch

    def serve(self) -> int:
        """Carry out the examiner's orders until it ends; the exit status of this process."""
        if self.adopted.role == "bystander":
            self._store.wait(["end"], _IDLE)
            return 0
        while True:
            self._number += 1
            key = f"order/{self._number}/{self.adopted.node}"
            if not self._wait_for(key):
                return 0
            order = _unpacked(self._store.get(key))
            if order is None:
                return 0
            options = WorldOptions(device=order["device"], allow=order["allow"])
            limits = Limits(**order["limits"])
            came = self._here(
                order["target"], order["payloads"], order["world_size"], limits, options
            )
            replies = [_reply_data(reply) for reply in came.replies]
            answer = _packed({"replies": replies, "rank": came.rank})
            self._set(f"reply/{self._number}/{self.adopted.node}", answer)

    def _wait_for(self, key: str) -> bool:
        """Wait for an order; False when the examiner's store is gone."""
        try:
            self._store.wait([key], _IDLE)
        except RuntimeError:
            return False
        return True
