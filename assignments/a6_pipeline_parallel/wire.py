"""Given: telling another rank what tensors are about to come, so that it can make room for them.

A header is two messages of integers, its length and its contents: the tensors' dtypes, shapes and
whether they require gradients, and any further numbers that sender and receiver agree on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist

__all__ = ["Signature", "TensorSpec", "make_room", "receive_header", "send_header", "signature_of"]

_DTYPES = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    *(torch.complex64, torch.complex128),
)
_DEVICES = ("cpu", "cuda", "meta")


class TensorSpec(NamedTuple):
    """What a tensor looks like: all that its receiver needs to know."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: str
    requires_grad: bool


Signature = tuple[TensorSpec, ...]


def signature_of(tensors: Sequence[torch.Tensor]) -> Signature:
    """What these tensors look like."""
    return tuple(
        TensorSpec(tuple(t.shape), t.dtype, t.device.type, t.requires_grad) for t in tensors
    )


def make_room(spec: TensorSpec) -> torch.Tensor:
    """A contiguous tensor to receive into."""
    return torch.empty(spec.shape, dtype=spec.dtype, device=spec.device)


def send_header(
    signature: Signature, numbers: Sequence[int], group: dist.ProcessGroup | None, group_dst: int
) -> list[tuple[torch.Tensor, dist.Work]]:
    """Start sending a header. Returns (buffer, work) of both messages; wait for all works.

    Raises:
        TypeError: a tensor has a dtype or device that is not known here.
    """
    contents = [len(numbers), *numbers]
    for spec in signature:
        if spec.dtype not in _DTYPES or spec.device not in _DEVICES:
            raise TypeError(f"cannot send a tensor of {spec.dtype} on {spec.device}")
        contents += [_DTYPES.index(spec.dtype), _DEVICES.index(spec.device)]
        contents += [int(spec.requires_grad), len(spec.shape), *spec.shape]
    device = _header_device(group)
    buffers = [torch.tensor(values, device=device) for values in ([len(contents)], contents)]
    return [(b, dist.isend(b, group=group, group_dst=group_dst)) for b in buffers]


def receive_header(group: dist.ProcessGroup | None, group_src: int) -> tuple[Signature, list[int]]:
    """Wait for a header: what is to come, and the further numbers."""
    device = _header_device(group)
    length = torch.empty(1, dtype=torch.int64, device=device)
    dist.irecv(length, group=group, group_src=group_src).wait()
    body = torch.empty(int(length), dtype=torch.int64, device=device)
    dist.irecv(body, group=group, group_src=group_src).wait()
    values = iter(body.tolist())
    numbers = [next(values) for _ in range(next(values))]
    specs: list[TensorSpec] = []
    for dtype in values:
        device_type, requires_grad, dimensions = next(values), next(values), next(values)
        shape = tuple(next(values) for _ in range(dimensions))
        specs.append(TensorSpec(shape, _DTYPES[dtype], _DEVICES[device_type], bool(requires_grad)))
    return tuple(specs), numbers


def _header_device(group: dist.ProcessGroup | None) -> str:
    return "cuda" if dist.get_backend(group) == "nccl" else "cpu"
