"""The system calls that code in a sandbox has no use for, as a program that the kernel checks.

What is left out: memory that belongs to no process (memfd, System V), another process's memory,
namespaces and mounts of one's own, keys, and sockets of families that no namespace keeps apart
(a virtual machine's vsock reaches its host).
"""

from __future__ import annotations

import errno
import platform
import struct
from dataclasses import dataclass
from typing import Final

_LOAD: Final = 0x20  # the 32 bits at an offset of seccomp_data
_EQUAL: Final = 0x15
_AT_LEAST: Final = 0x35
_HAS_BITS: Final = 0x45
_RETURN: Final = 0x06
_ALLOW: Final = 0x7FFF0000
_KILL: Final = 0x80000000
_REFUSE: Final = 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in seccomp_data
_CLONE_NEWUSER: Final = 0x10000000
_X32: Final = 0x40000000  # calls of x86-64's other ABI have this bit
_FAMILIES: Final = (1, 2, 10, 16)  # unix, inet, inet6, netlink

_REFUSED: Final = (
    "memfd_create", "memfd_secret", "shmget", "msgget", "semget",
    "ptrace", "process_vm_readv", "process_vm_writev", "userfaultfd", "bpf", "perf_event_open",
    "keyctl", "add_key", "request_key", "unshare", "setns", "mount", "umount2", "pivot_root",
    "open_by_handle_at", "io_uring_setup",
)  # fmt: skip


@dataclass(frozen=True)
class _Machine:
    """What the kernel calls an architecture, and its numbers of system calls."""

    audit: int
    clone: int
    clone3: int
    sockets: tuple[int, int]
    refused: tuple[int, ...]


_MACHINES: Final = {
    "x86_64": _Machine(
        0xC000003E, 56, 435, (41, 53),
        (319, 447, 29, 68, 64, 101, 310, 311, 323, 321, 298, 250, 248, 249, 272, 308, 165, 166,
         155, 304, 425),
    ),
    "aarch64": _Machine(
        0xC00000B7, 220, 435, (198, 199),
        (279, 447, 194, 186, 190, 117, 270, 271, 282, 280, 241, 219, 217, 218, 97, 268, 40, 39,
         41, 265, 425),
    ),
}  # fmt: skip


def program(machine: str | None = None) -> bytes:
    """The filter for `bwrap --seccomp`; empty for an architecture that is not known here."""
    known = _MACHINES.get(machine or platform.machine())
    if known is None:
        return b""
    assert len(known.refused) == len(_REFUSED)
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, known.audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _REFUSE | errno.ENOSYS),
    ]
    for number in known.refused:
        steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE | errno.EPERM)]
    # Its flags lie in memory, where no filter can look; the C library then takes clone.
    steps += [(_EQUAL, 0, 1, known.clone3), (_RETURN, 0, 0, _REFUSE | errno.ENOSYS)]
    steps += [
        (_EQUAL, 0, 4, known.clone),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_HAS_BITS, 0, 1, _CLONE_NEWUSER),
        (_RETURN, 0, 0, _REFUSE | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    first, second = known.sockets
    steps += [
        (_EQUAL, 1, 0, first),
        (_EQUAL, 0, len(_FAMILIES) + 2, second),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        *((_EQUAL, len(_FAMILIES) - place, 0, family) for place, family in enumerate(_FAMILIES)),
        (_RETURN, 0, 0, _REFUSE | errno.EAFNOSUPPORT),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
