"""Looking at the memory that a program hands to a communication call."""

from __future__ import annotations

from functools import lru_cache

import torch

from grader.fabric.record import Operation


def dense_reduction(operation: Operation, tensor: torch.Tensor) -> bool:
    """All-reduce and broadcast work in memory order: dense strides do, if all ranks agree."""
    return operation.kind in ("all_reduce", "broadcast", "reduce") and _is_dense(tensor)


def _is_dense(tensor: torch.Tensor) -> bool:
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


@lru_cache(maxsize=64)
def dtype_name(dtype: torch.dtype) -> str:
    """ "float32" for `torch.float32`."""
    return str(dtype).removeprefix("torch.")


def bits(tensor: torch.Tensor) -> torch.Tensor:
    # A tensor of one element is contiguous whatever its stride says; a view asks for stride 1.
    flat = tensor.detach().as_strided((tensor.numel(),), (1,), tensor.storage_offset())
    return flat.view(torch.uint8)


def poison(tensor: torch.Tensor) -> None:
    """Fill a buffer with what nobody sends: NaN, or the smallest integer."""
    if tensor.is_meta or tensor.numel() == 0:
        return
    dtype = tensor.dtype
    if dtype.is_floating_point or dtype.is_complex:
        tensor.fill_(float("nan"))
    elif dtype is torch.bool:
        tensor.fill_(True)
    else:
        tensor.fill_(torch.iinfo(dtype).min if dtype.is_signed else 0x55)
