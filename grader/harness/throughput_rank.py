"""A rank that is timed: it prepares, then runs its step each time the examiner says so.

The rank's own clock is never asked. What the examiner believes is the content of its buffers
after it has stopped the process, and when it was told that there is content.
"""

from __future__ import annotations

import gc
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

import torch
import torch.distributed as dist

from grader.harness import worker
from grader.harness.throughput_buffers import attach
from grader.harness.worlds_rank import current

LINE_FD: Final = worker.EXTRA_FD
MEMORY_FD: Final = worker.EXTRA_FD + 1
LOAD, RUN, STORE, QUIT = b"l", b"r", b"s", b"q"
DONE: Final = b"d"
_COLD_NBYTES: Final = 256 << 20

Step = Callable[[], None]

_WATCHED: Final = {
    "time": ("time", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "sleep"),
    "torch": ("allclose", "equal", "isclose"),
    "torch.testing": ("assert_close",),
    "torch.cuda": ("synchronize",),
    "torch.distributed": (
        "all_reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter_tensor", "broadcast",
        "all_to_all_single", "barrier", "send", "recv", "isend", "irecv", "batch_isend_irecv",
        "init_process_group", "new_group", "get_rank", "get_world_size",
    ),
    "torch.Tensor": ("equal", "allclose", "copy_", "add_"),
}  # fmt: skip


def _seen() -> dict[str, object]:
    found: dict[str, object] = {}
    for owner, names in _WATCHED.items():
        place = torch.Tensor if owner == "torch.Tensor" else sys.modules[owner]
        for name in names:
            found[f"{owner}.{name}"] = getattr(place, name, None)
    return found


def serve(payload: dict[str, Any]) -> dict[str, Any]:
    """Be timed. payload: buffers (their description), prepare ("module:function"), given.

    prepare(given, buffers) returns the step: a function without arguments that works on the
    buffers, by name. Returns names of functions that the code under test replaced, and of its
    threads.
    """
    rank = current()
    before = _seen()
    synchronize = torch.cuda.synchronize if rank.device != "cpu" else None
    host = attach(MEMORY_FD, payload["buffers"])
    buffers = host if synchronize is None else {n: t.to(rank.device) for n, t in host.items()}
    step: Step = worker.resolve(payload["prepare"])(payload["given"], buffers)  # type: ignore[call-arg]
    dist.barrier()
    gc.collect()
    gc.freeze()
    cold = None if synchronize is None else torch.empty(_COLD_NBYTES // 4, device=rank.device)
    with socket.socket(fileno=LINE_FD) as line:
        line.send(DONE)
        while (order := line.recv(16)) not in (QUIT, b""):
            if order.startswith(RUN):
                for _ in range(int(order[1:])):
                    step()
            elif order == LOAD:
                for name, tensor in buffers.items():
                    tensor.copy_(host[name])
                if cold is not None:
                    cold.zero_()
            elif order == STORE:
                for name, tensor in buffers.items():
                    host[name].copy_(tensor)
            if synchronize is not None:
                synchronize()
            line.send(DONE)
    after = _seen()
    return {
        "replaced": sorted(name for name in before if before[name] is not after[name]),
        "threads": [t.name for t in threading.enumerate() if t is not threading.main_thread()],
    }
