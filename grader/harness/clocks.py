"""The examiner's clock, and its hand on processes: they run only while it is running.

Nothing here is imported from a process that runs code under test at a time that counts.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from grader.harness import processes

_STOP_SECONDS: Final = 2.0
_LOCK_NAME: Final = "\0tinyparallel-throughput"
_TURN_SECONDS: Final = 300.0
_AFTER_YOU_SECONDS: Final = 0.2
_PRIORITY: Final = -18
_STILL: Final = (b"T", b"t", b"Z", b"X")


def now() -> float:
    """Seconds, from a clock that only goes forward."""
    return time.perf_counter()


def stop(pids: Sequence[int]) -> float:
    """Stop the processes; the time at which they had been told to."""
    for pid in pids:
        processes.send_signal(pid, signal.SIGSTOP)
    return now()


def settle(pids: Sequence[int]) -> None:
    """Wait until every thread of the stopped processes stands still, and of what they forked.

    Raises TimeoutError when one does not.
    """
    deadline = time.monotonic() + _STOP_SECONDS
    members = [member for pid in pids for member in processes.tree(pid)]
    for member in members:
        if member not in pids:
            processes.send_signal(member, signal.SIGSTOP)
    while not all(_stands_still(pid) for pid in members):
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {members} cannot be stopped")
        time.sleep(0.0002)


def resume(pids: Iterable[int]) -> None:
    """Let stopped processes go on. What they forked stays stopped: nobody waits for it."""
    for pid in pids:
        processes.send_signal(pid, signal.SIGCONT)


@contextlib.contextmanager
def urgent() -> Iterator[None]:
    """Run before all others meanwhile, with all threads begun here, where that is permitted.

    On a busy machine the examiner would else hear of the end when its turn comes.
    """
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _PRIORITY)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)


def hurry() -> None:
    """Raise the priority of this process and its session for good, where that is permitted.

    Where the kernel groups processes by session, a process's own priority counts in its group only.
    """
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, _PRIORITY)
        with open("/proc/self/autogroup", "w", encoding="ascii") as file:
            file.write(str(_PRIORITY))


def _stands_still(pid: int) -> bool:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return True  # it is gone
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/stat", "rb") as file:
                state = file.read().rpartition(b")")[2].split()[0]
        except (OSError, IndexError):
            continue
        if state not in _STILL:
            return False
    return True


def loopback_nbytes(pid: int) -> int | None:
    """Bytes that the machine, as process `pid` sees it, has sent to itself so far.

    A sandbox has a network of its own. None when the kernel does not say.
    """
    try:
        with open(f"/proc/{pid}/net/dev", encoding="ascii") as file:
            for line in file:
                name, _, numbers = line.partition(":")
                if name.strip() == "lo":
                    return int(numbers.split()[8])
    except (OSError, ValueError, IndexError):
        return None
    return None


@contextlib.contextmanager
def turn(patience: float = _TURN_SECONDS, name: str = _LOCK_NAME) -> Iterator[bool]:
    """Hold the machine for one measurement; another grader's waits meanwhile.

    The value is False when `patience` ran out: then the measurement is not alone. The lock is an
    abstract socket name, which the kernel takes back when its holder dies; it leaves no file.
    """
    deadline = time.monotonic() + patience
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as lock:
        held = _take(lock, name)
        while not held and time.monotonic() < deadline:
            _wait_for_holder(name, deadline - time.monotonic())
            held = _take(lock, name)
        try:
            yield held
        finally:
            somebody = held and _somebody_waits(lock)
            lock.close()
            if somebody:
                time.sleep(_AFTER_YOU_SECONDS)  # or we would be back before they have woken up


def _take(lock: socket.socket, name: str) -> bool:
    try:
        lock.bind(name)
        lock.listen(64)
    except OSError:
        return False
    return True


def _somebody_waits(lock: socket.socket) -> bool:
    lock.setblocking(False)
    try:
        lock.accept()[0].close()
    except OSError:
        return False
    return True


def _wait_for_holder(name: str, seconds: float) -> None:
    """Return when the holder has let go: its end of our connection closes."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as waiting:
        waiting.settimeout(max(seconds, 0.001))
        try:
            waiting.connect(name)
            waiting.recv(1)
        except OSError:
            time.sleep(0.01)  # between its bind and its listen, or full: ask again
