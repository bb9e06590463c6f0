"""What Linux says about processes: children, memory; and how to end a whole tree."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_SET_DUMPABLE: Final = 4
_HAS_CHILDREN_FILE: Final = Path(f"/proc/self/task/{os.getpid()}/children").exists()
_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")


def adopt_orphans() -> None:
    """Make this process the parent of every descendant whose own parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that forked it ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def forbid_privileges() -> None:
    """No set-uid program gains rights from here: it would be one that we cannot kill."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def guard_memory(guarded: bool) -> None:
    """Whether others of the same user are kept out of this process's memory (/proc, ptrace)."""
    _prctl(_PR_SET_DUMPABLE, 0 if guarded else 1)


def numbers(pid: int) -> list[int]:
    """The numbers of a process: ours, then one for each process namespace that it is deeper in."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", "rb") as file:
        for line in file:
            if line.startswith(b"NSpid:"):
                return [int(number) for number in line.split()[1:]]
    return []


def _parents() -> dict[int, list[int]]:
    """Children of every process, by one look through /proc."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                # The name of the program stands in parentheses and may hold anything.
                parent = int(file.read().rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
    return children


def _listed_children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found.extend(int(child) for child in file.read().split())
    return found


def children(pid: int) -> list[int]:
    """Processes whose parent is ``pid``, those that ended but were not reaped included."""
    return _listed_children(pid) if _HAS_CHILDREN_FILE else _parents().get(pid, [])


def tree(pid: int) -> list[int]:
    """``pid`` and all its descendants, parents first."""
    table = None if _HAS_CHILDREN_FILE else _parents()
    found = [pid]
    for parent in found:
        below = _listed_children(parent) if table is None else table.get(parent, [])
        found.extend(child for child in below if child not in found)
    return found


def _rss(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0  # it has ended


def _pss(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except ProcessLookupError:
        return 0
    except OSError:
        return _rss(pid)
    return 0


def memory(pids: Iterable[int], limit: int) -> int:
    """Bytes that the processes hold together, shared pages counted once if it matters.

    The resident size is never less than the proportional one and far cheaper to read, so the
    proportional size is only looked up when the resident size is above ``limit``.
    """
    known = list(pids)
    resident = sum(_rss(pid) for pid in known)
    return resident if resident <= limit else sum(_pss(pid) for pid in known)


def cpu_seconds(pids: Iterable[int]) -> float:
    """CPU time of the processes, with that of children that they have waited for."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
            ticks += sum(map(int, file.read().rpartition(b")")[2].split()[11:15]))
    return ticks / _TICKS_PER_SECOND


def send_signal(pid: int, number: int) -> bool:
    """Send a signal; False when there is no such process any more."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def runs(pid: int) -> bool:
    """Whether there is such a process, and it has not ended (it may wait to be reaped)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def kill_tree(pid: int) -> None:
    """Kill ``pid`` and its descendants; stopped first, so that none forks in the meantime."""
    stopped: set[int] = set()
    for _ in range(20):
        fresh = [member for member in tree(pid) if member not in stopped]
        if not fresh:
            break
        for member in fresh:
            send_signal(member, signal.SIGSTOP)
        stopped.update(fresh)
    for member in stopped:
        send_signal(member, signal.SIGKILL)


def kill_marked(mark: str) -> list[int]:
    """Kill every process started with ``mark`` in its environment; returns their pids.

    Forked processes keep the environment block of the program that they were forked from.
    """
    killed: list[int] = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                if mark.encode() in file.read().split(b"\0"):
                    killed.append(int(name))
    for pid in killed:
        send_signal(pid, signal.SIGKILL)
    return killed
