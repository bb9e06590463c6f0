# mypy: disable-error-code="override"
"""One rank of a brokered world, in a process of its own: everything it posts goes to the broker.

The rank's tensors are looked at here as on the simulated cluster (`runtime`); matching, results
and the record are the broker's.
"""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar, cast

import numpy as np
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

from grader.fabric import broker_wire as wire
from grader.fabric.collectives import CollectiveCall
from grader.fabric.current import being
from grader.fabric.engine import Pending
from grader.fabric.findings import Finding, SimulationAborted
from grader.fabric.interception import Interception, check_store_use
from grader.fabric.record import Event, Operation, Record
from grader.fabric.runtime import RankRuntime
from grader.fabric.simulate import rank_environment
from grader.fabric.store import DEFAULT_TIMEOUT
from grader.fabric.threads import host_sleep
from grader.fabric.torch_internals import release_groups

T = TypeVar("T")


class Link:
    """The socket to the broker: one question, one answer."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self.aborted = False

    def ask(
        self, message: wire.Message, tensors: Sequence[torch.Tensor] = ()
    ) -> tuple[wire.Message, list[torch.Tensor]]:
        """Raises `SimulationAborted` when the run has ended."""
        if self.aborted:
            raise SimulationAborted("the run has ended")
        try:
            self._channel.sendall(wire.pack(message, tensors))
            answer, brought = wire.receive(self._channel)
        except (OSError, EOFError):
            self.aborted = True
            raise SimulationAborted("the broker has gone") from None
        if answer.pop("aborted"):
            self.aborted = True
            raise SimulationAborted("the run has ended")
        return answer, brought


class RemoteEngine:
    """What `RankRuntime` and `SimProcessGroup` ask of an engine, asked of the broker."""

    def __init__(self, link: Link, world_size: int, allow: frozenset[str] | None) -> None:
        self.world_size = world_size
        self.allow = allow
        self.record = Record(world_size, events=[[] for _ in range(world_size)])
        # Whether the calls made now are the program's own.
        self.region: Callable[[], bool] = lambda: False
        self._link = link
        self._pending: dict[int, Pending] = {}
        self._noted: dict[int, bool] = {}  # waits that the broker has not been told of

    def group(self, name: str, ranks: Sequence[int]) -> int:
        """The key of a group."""
        answer, _ = self._link.ask({"do": "group", "name": name, "ranks": list(ranks)})
        return int(answer["key"])

    def new_batch(self) -> int:
        """A number for the operations of one batch."""
        return int(self._link.ask({"do": "batch"})[0]["batch"])

    def end_batch(self, rank: int) -> None:
        """The batch is complete."""
        self._link.ask({"do": "end_batch"})

    def post_send(self, operation: Operation, payload: torch.Tensor | None) -> Pending:
        """Post a send of `payload`."""
        assert payload is not None
        pending = self._post(operation, {}, [payload])
        pending.payload = payload  # to see whether the buffer was changed before the wait
        return pending

    def post_receive(self, operation: Operation) -> Pending:
        """Post a receive."""
        return self._post(operation, {}, [])

    def post_collective(self, operation: Operation, call: CollectiveCall) -> Pending:
        """Post this rank's call of a collective."""
        factor = call.factor
        described = {
            "op": call.op,
            "root": call.root,
            "items": call.items,
            "factor": factor.item() if isinstance(factor, torch.Tensor) else factor,
            "layout": [list(strides) for strides in call.layout],
            "output_numel": list(call.output_numel),
            "signature": [str(part) for part in call.signature],
        }
        pending = self._post(operation, described, call.inputs)
        pending.call = call
        return pending

    def _post(
        self, operation: Operation, more: wire.Message, tensors: Sequence[torch.Tensor]
    ) -> Pending:
        place = operation.location
        message = {
            "do": "post",
            "kind": operation.kind,
            "group": operation.group,
            "peer": operation.peer,
            "shape": list(operation.shape),
            "dtype": operation.dtype,
            "device": operation.device,
            "tag": operation.tag,
            "batch": operation.batch,
            "location": None if place is None else [place.file, place.line, place.function],
            "region": self.region(),
            **more,
        }
        answer, _ = self._link.ask(message, tensors)
        operation.id = int(answer["id"])
        pending = self._pending[operation.id] = Pending(operation)
        return pending

    def posted(self, operation: Operation, region: bool) -> None:
        """Keep the rank's own diary, which a driver may look at; the broker keeps its own."""
        self.record.events[operation.rank].append(Event("post", operation.id, 0, 0, None, region))

    def waiting(self, pending: Pending, region: bool) -> None:
        """Note that the rank's program waits for `pending` now."""
        operation = pending.operation
        self.record.events[operation.rank].append(Event("wait", operation.id, 0, 0, None, region))
        if pending.done:  # its results came before the program looked at them
            self._link.ask({"do": "note", "id": operation.id, "region": region})
        else:
            self._noted[operation.id] = region

    def take(self, pending: Pending) -> None:
        """Wait for `pending`: its results are there when this returns."""
        number = pending.operation.id
        message = {"do": "wait", "id": number, "note": number in self._noted}
        answer, results = self._link.ask(message | {"region": self._noted.pop(number, False)})
        self._pending.pop(number)
        if pending.call is not None:
            pending.call.outputs = results
        elif results:
            pending.result = results[0]
        pending.source = int(answer["source"])
        pending.done = True

    def completed(self, pending: Pending) -> None:
        """The rank has taken its result."""
        pending.waited = True
        pending.payload = pending.result = None
        if pending.call is not None:
            pending.call.outputs = []

    def look(self) -> None:
        """Take what is done."""
        for number in self._link.ask({"do": "look"})[0]["done"]:
            self.take(self._pending[number])

    def end(self) -> None:
        """The rank's program has ended; what torch's own code left unwaited is not the user's."""
        for pending in list(self._pending.values()):
            if pending.by_torch:
                self.waiting(pending, region=False)
                self.take(pending)
        self._link.ask({"do": "end"})


class RemoteScheduler:
    """What `RankRuntime` asks of a scheduler, where every rank has a process."""

    is_random = False

    def __init__(self, link: Link, engine: RemoteEngine) -> None:
        self._link = link
        self._engine = engine

    @property
    def aborted(self) -> bool:
        """Whether the run has ended."""
        return self._link.aborted

    def abort(self) -> None:
        """End the run; the broker knows already."""
        self._link.aborted = True

    def wait_for(self, thread: object, pending: Pending) -> None:
        """Suspend the rank until `pending` is done."""
        self._engine.take(pending)

    def maybe_yield(self, thread: object) -> None:
        """Nothing: the others run by themselves."""

    def yield_now(self, thread: object) -> None:
        """Give the others a moment, and look what has come."""
        host_sleep(0.0005)
        self._engine.look()

    def wait_until(
        self, thread: object, condition: Callable[[], bool] | None, deadline: float | None
    ) -> bool:
        """Sleep until the host's clock passes `deadline`."""
        if deadline is not None:
            host_sleep(max(0.0, deadline - time.monotonic()))
        return condition is None or condition()


class RemoteStore(Store):
    """The store that all ranks share, kept by the broker."""

    def __init__(self, link: Link, runtime: RankRuntime) -> None:
        super().__init__()
        self._link = link
        self._runtime = runtime

    def _ask(self, name: str, keys: Sequence[str], **more: Any) -> wire.Message:
        self._runtime.check_thread()
        check_store_use(self._runtime, name)
        return self._link.ask({"do": "store", "name": name, "keys": list(keys), **more})[0]

    def set(self, key: str, value: str | bytes) -> None:
        """Set key to value."""
        self._ask("set", [key], value=_hex(value))

    def get(self, key: str) -> bytes:
        """The value of key, once somebody has set it."""
        self.wait([key])
        return bytes.fromhex(self._ask("get", [key])["value"])

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys are set. DistStoreError after the time-out."""
        limit = self.timeout if timeout is None else timeout  # type: ignore[attr-defined]
        seconds = None if limit == DEFAULT_TIMEOUT else limit.total_seconds()
        if self._ask("wait", keys, seconds=seconds).get("missing"):
            raise dist.DistStoreError(f"wait timeout after {limit}, keys: {list(keys)}")

    def add(self, key: str, amount: int) -> int:
        """Add to a counter and return its value."""
        return int(self._ask("add", [key], amount=amount)["number"])

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys are set."""
        return bool(self._ask("check", keys)["number"])

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Set key to desired if it is expected (or unset and expected is empty)."""
        answer = self._ask("compare_set", [key], expected=_hex(expected), value=_hex(desired))
        return bytes.fromhex(answer["value"])

    def delete_key(self, key: str) -> bool:
        """Forget key; whether it was there."""
        return bool(self._ask("delete_key", [key])["number"])

    def num_keys(self) -> int:
        """Number of keys."""
        return int(self._ask("num_keys", [])["number"])

    def append(self, key: str, value: str | bytes) -> None:
        """Append to the value of key."""
        self._ask("append", [key], value=_hex(value))

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values of several keys, once all are set."""
        return [self.get(key) for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Set several keys."""
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def has_extended_api(self) -> bool:
        """append, multi_get and multi_set are there."""
        return True

    # The names under which torch's C++ looks for the same methods.
    getNumKeys = num_keys
    deleteKey = delete_key
    compareSet = compare_set
    multiGet = multi_get
    multiSet = multi_set
    hasExtendedApi = has_extended_api


def _hex(value: str | bytes | Sequence[int]) -> str:
    return (value.encode() if isinstance(value, str) else bytes(value)).hex()


def live(
    fn: Callable[[], T],
    channel: socket.socket,
    rank: int,
    world_size: int,
    *,
    seed: int = 0,
    allow: frozenset[str] | None = None,
    compute: bool = False,
) -> T:
    """Run fn() as this rank of the world whose broker is at the other end of `channel`.

    seed, allow, compute: as `simulate` takes them. Raises what fn raises, and
    `SimulationAborted` when the broker has ended the run.
    """
    link = Link(channel)
    engine = RemoteEngine(link, world_size, allow)
    scheduler = RemoteScheduler(link, engine)

    def report(finding: Finding) -> None:
        link.ask({"do": "finding", "kind": finding.kind, "message": finding.message[:8000]})

    runtime = RankRuntime(
        rank, cast(Any, engine), cast(Any, scheduler), cast(Any, None), report, compute
    )
    engine.region = lambda: runtime.region
    runtime.store = cast(Any, RemoteStore(link, runtime))
    os.environ.update(rank_environment(rank, world_size, {}))
    random.seed(f"{seed}/{rank}")
    np.random.seed((seed * 1_000_003 + rank) % 2**32)
    with Interception(), being(runtime):
        runtime.start()
        try:
            runtime.region = False
            dist.init_process_group("sim")
            runtime.region = True
            value = fn()
            engine.end()
            return value
        finally:
            runtime.stop()
            release_groups()
