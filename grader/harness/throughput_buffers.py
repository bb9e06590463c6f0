"""Tensors that the examiner owns and a rank works on: shared memory without a name.

The memory is a sealed memfd: a rank can write into it, but neither shrink it under the examiner
nor keep it when both are gone.
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os
from collections.abc import Mapping
from typing import Any, Final

import torch

_ALIGN: Final = 4096
_F_ADD_SEALS: Final = getattr(fcntl, "F_ADD_SEALS", 1033)
_SEALS: Final = 0x0001 | 0x0002 | 0x0004  # F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW

Layout = Mapping[str, tuple[tuple[int, ...], torch.dtype]]


def _described(layout: Layout) -> tuple[dict[str, Any], int]:
    offset, described = 0, {}
    for name, (shape, dtype) in layout.items():
        described[name] = {"shape": list(shape), "dtype": dtype, "offset": offset}
        nbytes = math.prod(shape) * dtype.itemsize
        offset += -(-nbytes // _ALIGN) * _ALIGN
    return described, max(offset, _ALIGN)


class Buffers:
    """The buffers of one rank, on the examiner's side. layout: name -> (shape, dtype)."""

    def __init__(self, layout: Layout) -> None:
        self.description, self.nbytes = _described(layout)
        self.fd = os.memfd_create("tinyparallel", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.truncate(self.fd, self.nbytes)
            fcntl.fcntl(self.fd, _F_ADD_SEALS, _SEALS)
            self.tensors = attach(self.fd, self.description)
        except BaseException:
            os.close(self.fd)
            raise

    def close(self) -> None:
        """Give the memory up; tensors must not be used any more."""
        self.tensors = {}
        os.close(self.fd)


def attach(fd: int, description: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors that lie in the memory behind `fd`."""
    memory = mmap.mmap(fd, os.fstat(fd).st_size)
    tensors = {}
    for name, each in description.items():
        count = math.prod(each["shape"])
        flat = (
            torch.frombuffer(memory, dtype=each["dtype"], count=count, offset=each["offset"])
            if count
            else torch.empty(0, dtype=each["dtype"])
        )
        tensors[name] = flat.view(each["shape"])
    return tensors
