"""Student code that looks for a way out, or takes all it can get. Runs inside the sandbox only."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)


def _tried(action: Callable[[], object]) -> str:
    """ "done", or why not."""
    try:
        action()
    except OSError as error:
        return os.strerror(error.errno) if error.errno else str(error)
    return "done"


def _connected(family: int, address: Any) -> str:
    with socket.socket(family) as probe:
        probe.settimeout(2)
        return _tried(lambda: probe.connect(address))


def network(addresses: dict[str, Any]) -> dict[str, str]:
    """Ways to the outside: what the examiner listens on, and the world."""
    found = {
        "tcp": _connected(socket.AF_INET, ("127.0.0.1", addresses["port"])),
        "abstract": _connected(socket.AF_UNIX, "\0" + addresses["name"]),
        "unix": _connected(socket.AF_UNIX, addresses["path"]),
        "internet": _connected(socket.AF_INET, ("1.1.1.1", 53)),
        "udp": _tried(lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("1.1.1.1", 53))),
        "name": _tried(lambda: socket.getaddrinfo("example.org", 80)),
    }
    for name in ("AF_VSOCK", "AF_PACKET", "AF_ALG"):
        family = getattr(socket, name)
        found[name] = _tried(lambda family=family: socket.socket(family))
    found["interfaces"] = ",".join(name for _, name in socket.if_nameindex())
    return found


def loopback(payload: None) -> bytes:
    """The sandbox's own loopback works, as gloo needs it."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as one,
        listener.accept()[0] as other,
    ):
        one.sendall(b"hello")
        return other.recv(5)


def _listed(folder: str) -> list[str]:
    with contextlib.suppress(OSError):
        return sorted(os.listdir(folder))
    return []


def view(folders: list[str]) -> dict[str, list[str]]:
    """What lies in folders."""
    return {folder: _listed(folder) for folder in folders}


def readable(paths: list[str]) -> list[str]:
    """Which of these can be opened."""
    return [path for path in paths if _tried(lambda path=path: open(path, "rb").close()) == "done"]


def writable(paths: list[str]) -> dict[str, str]:
    """Which of these folders take a file."""
    return {path: _tried(lambda path=path: Path(path, "was-here").touch()) for path in paths}


def visible_processes(payload: None) -> list[tuple[int, str]]:
    """Every process that can be seen, with its command."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            words = Path("/proc", name, "cmdline").read_bytes().split(b"\0")
            found.append((int(name), words[0].decode(errors="replace").rpartition("/")[2]))
    return sorted(found)


def environment(payload: None) -> dict[str, str]:
    """All of it."""
    return dict(os.environ)


def status(payload: None) -> dict[str, str]:
    """What the kernel says of this process's rights."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def system_calls(payload: None) -> dict[str, str]:
    """Calls that no homework needs."""

    def call(name: str, *arguments: Any) -> str:
        result = getattr(_libc, name)(*arguments)
        return "done" if result >= 0 else os.strerror(ctypes.get_errno())

    return {
        "memfd_create": call("memfd_create", b"x", 0),
        "shmget": call("shmget", 0, 1 << 20, 0o1600),
        "ptrace": call("ptrace", 16, 2, 0, 0),
        "unshare": call("unshare", 0x10000000),
        "mount": call("mount", b"none", b"/tmp", b"tmpfs", 0, None),
        "setns": call("setns", 0, 0),
        "keyctl": call("syscall", 250, 0, 0, 0),
    }


def server_memory(payload: None) -> dict[str, str]:
    """The fork server's memory and descriptors."""
    server = os.getppid()
    return {
        name: _tried(lambda name=name: os.open(f"/proc/{server}/{name}", os.O_RDWR))
        for name in ("mem", "fd/0")
    }


def settings(payload: None) -> dict[str, str]:
    """The machine's settings."""
    places = ("kernel/core_pattern", "vm/overcommit_memory", "kernel/hostname")
    return {
        place: _tried(lambda place=place: os.open(f"/proc/sys/{place}", os.O_WRONLY))
        for place in places
    }


def kill_server(number: int) -> None:
    """Send a signal to the fork server, and stay."""
    os.kill(os.getppid(), number)
    time.sleep(60)


def leave_behind(payload: None) -> str:
    """Daemons that ignore what they can, and files that are hard to remove."""
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            if os.fork() == 0:
                while True:
                    time.sleep(60)
            os._exit(0)
    top = Path("/tmp/left")
    top.mkdir()
    folder = top
    for _ in range(200):
        folder = folder / "deep"
        folder.mkdir()
    (top / "link").symlink_to("/usr")
    (top / "closed").mkdir()
    (top / "closed" / "file").touch()
    (top / "closed").chmod(0)
    Path("/dev/shm/left").write_bytes(b"x" * 1000)
    os.mkfifo("/tmp/left/fifo")
    return "left"


def fork_bomb(payload: None) -> None:
    """Every process forks on."""
    while True:
        with contextlib.suppress(OSError):
            os.fork()


def threads_bomb(payload: None) -> int:
    """How many threads can be started, up to a thousand."""
    done = threading.Event()
    started = []
    with contextlib.suppress(RuntimeError):
        while len(started) < 1000:
            started.append(threading.Thread(target=done.wait))
            started[-1].start()
    count = sum(thread.is_alive() for thread in started)
    done.set()
    return count


def memory_bomb(payload: None) -> None:
    """One process takes more and more."""
    hoard = []
    while True:
        hoard.append(b"x" * (8 << 20))


def memory_of_many(count: int) -> None:
    """Processes that are small each, and large together."""
    for _ in range(count):
        if os.fork() == 0:
            break
    hoard = [os.urandom(8 << 20) for _ in range(16)]
    time.sleep(60)
    del hoard


def shared_memory_bomb(payload: None) -> None:
    """Memory that belongs to no process: anonymous and shared, written once."""
    hoard = []
    while True:
        part = mmap.mmap(-1, 8 << 20)
        part.write(b"x" * (8 << 20))
        hoard.append(part)


def disk_bomb(folder: str) -> int:
    """Write until the disk is full; how much fitted."""
    total = 0
    with open(f"{folder}/bomb", "wb") as file:
        while True:
            total += file.write(b"x" * (1 << 20))
            if total > 4 << 30:
                return total


def files_bomb(payload: None) -> None:
    """Empty files without end: they take no space and no less memory."""
    number = 0
    while True:
        os.close(os.open(f"/tmp/{number}", os.O_CREAT | os.O_WRONLY))
        number += 1


def descriptors_bomb(payload: None) -> int:
    """Open files without end; how many there can be."""
    count = 0
    while True:
        try:
            os.dup(0)
        except OSError:
            return count
        count += 1


def flood(payload: None) -> None:
    """Print without end."""
    while True:
        print("x" * 100_000)


def burn(payload: None) -> None:
    """Every core, by several processes, never waiting."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    for _ in range(3):
        if os.fork() == 0:
            break
    while True:
        pass


def echo(payload: object) -> object:
    """What it got."""
    return payload


def gloo(payload: None) -> float:
    """Add over a real world's ranks."""
    import torch
    import torch.distributed as dist

    total = torch.ones(1)
    dist.all_reduce(total)
    return float(total)
