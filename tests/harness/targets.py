"""What a student's code may do to a worker. Each function is a call's target."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import signal
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch

from grader.harness import send_progress


def echo(payload: Any) -> Any:
    return payload


def pid(_: object) -> int:
    return os.getpid()


def surroundings(_: object) -> dict[str, Any]:
    return {
        "cwd": os.getcwd(),
        "tmp": tempfile.gettempdir(),
        "environment": dict(os.environ),
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "fds": sorted(int(fd) for fd in os.listdir("/proc/self/fd")),
        "stdin": sys.stdin.read(),
        "leader": os.getsid(0) == os.getpid(),
    }


def big_matmul(size: int) -> torch.Tensor:
    torch.set_num_threads(2)
    return torch.ones(size, size) @ torch.ones(size, size)


def segfault(_: object) -> None:
    print("about to fall", flush=True)
    ctypes.string_at(0)


def leave(code: int) -> NoReturn:
    os._exit(code)


def leave_from_thread(code: int) -> None:
    threading.Thread(target=os._exit, args=(code,)).start()
    time.sleep(30)


def system_exit(_: object) -> NoReturn:
    sys.exit(0)


def interrupt(_: object) -> NoReturn:
    raise KeyboardInterrupt


def fail(message: str) -> NoReturn:
    raise NotImplementedError(message)


class BrokenError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


def fail_without_words(_: object) -> NoReturn:
    raise BrokenError


def python_loop(_: object) -> NoReturn:
    while True:
        pass


def c_loop(_: object) -> None:
    re.match(r"(a+)+$", "a" * 64 + "b")


def c_pause(_: object) -> None:
    ctypes.CDLL(None).pause()


def stop_oneself(_: object) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def flood(_: object) -> NoReturn:
    os.write(1, b"the beginning\n")
    while True:
        os.write(2, b"x" * 65536)


def memory_bomb(_: object) -> list[bytearray]:
    kept = []
    while True:
        kept.append(bytearray(b"x") * (16 << 20))


def memory_of_children(_: object) -> None:
    for _child in range(4):
        if os.fork() == 0:
            kept = bytearray(b"x") * (200 << 20)
            time.sleep(30)
            os._exit(len(kept) & 1)
    time.sleep(30)


def fork_bomb(_: object) -> NoReturn:
    while True:
        os.fork()


def hop(_: object) -> NoReturn:
    """Never stay in one process for long."""
    while True:
        if os.fork():
            os._exit(0)


def leave_orphans(where: str) -> None:
    """A grandchild in a session of its own, whose pid goes to a file."""
    child = os.fork()
    if child == 0:
        os.setsid()
        orphan = os.fork()
        if orphan:
            Path(where).write_text(str(orphan))
        else:
            time.sleep(60)
        os._exit(0)
    os.waitpid(child, 0)


def fork_and_return(_: object) -> int:
    """Both processes come back from the call."""
    os.fork()
    return os.getpid()


def litter(_: object) -> str:
    deep = Path("deep")
    deep.mkdir()
    (deep / "file").write_text("left behind")
    deep.chmod(0)
    Path(tempfile.mkdtemp(), "other").write_text("here too")
    return os.getcwd()


def litter_and_die(where: str) -> None:
    Path(where).write_text(os.getcwd())
    Path("file").write_text("left behind")
    os.kill(os.getpid(), signal.SIGKILL)


def kill_server(_: object) -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(30)


def stop_server(_: object) -> None:
    os.kill(os.getppid(), signal.SIGSTOP)
    time.sleep(30)


def orphan_then_kill_server(where: str) -> None:
    leave_orphans(where)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(30)


def close_everything(_: object) -> None:
    os.closerange(0, 4096)


def garbage_to_channel(_: object) -> None:
    os.write(3, b"\0" * 64)
    time.sleep(30)


def huge_frame(_: object) -> None:
    os.write(3, b"TPf1" + (1 << 20).to_bytes(4, "big") + (1 << 50).to_bytes(8, "big"))
    time.sleep(30)


def forged_frame(_: object) -> None:
    from grader.harness import frames

    with socket.socket(fileno=os.dup(3)) as channel:
        frames.send(
            channel,
            {"kind": "result", "status": "ok", "tree": {"value": 1, "storages": []}},
        )
    time.sleep(30)


def second_result(_: object) -> str:
    """Send a result with the true token, found in the frames of the harness, and then return."""
    from grader.harness import frames

    token = next(
        item["token"]
        for item in gc.get_objects()
        if type(item) is dict and "token" in item and "target" in item
    )
    with socket.socket(fileno=os.dup(3)) as channel:
        for _copy in range(2):
            message = {
                "kind": "result",
                "token": token,
                "status": "ok",
                "tree": {"value": "forged", "storages": []},
            }
            text = b"".join(frames.pack(message))
            channel.sendall(text * 2)
    return "true"


def too_large(nbytes: int) -> torch.Tensor:
    return torch.zeros(nbytes, dtype=torch.uint8)


def large_file(nbytes: int) -> None:
    with open("large", "wb") as file:
        file.write(b"x" * nbytes)


class Lying(torch.Tensor):
    pass


def subclass(_: object) -> Any:
    return {"outputs": [1, torch.zeros(2).as_subclass(Lying)]}


def half_way(count: int) -> None:
    for step in range(count):
        send_progress({"step": step, "tensor": torch.full((2,), step)})
    os._exit(7)


def mutate_the_world(_: object) -> None:
    sys.modules["student_was_here"] = sys
    os.environ["STUDENT_WAS_HERE"] = "1"
    torch.manual_seed = None  # type: ignore[assignment]
    np.random.seed(0)


def sleep(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def meet(directory: str) -> bool:
    """True when another call that runs at the same time has come here too."""
    mine = Path(directory, str(os.getpid()))
    mine.touch()
    deadline = time.monotonic() + 8
    while time.monotonic() < deadline:
        if len(os.listdir(directory)) == 2:
            return True
        time.sleep(0.002)
    return False


def print_lines(count: int) -> None:
    for line in range(count):
        print(f"line {line}")
    print("to stderr", file=sys.stderr)
