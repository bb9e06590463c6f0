"""What passes between a broker and the process of a rank: JSON, then the bytes of tensors.

A frame is a header, a JSON object and a block of bytes. "tensors" of the object says what the block
holds: [dtype, shape, device] for each; meta tensors have no bytes in it. Never pickle.
"""

from __future__ import annotations

import json
import math
import socket
import struct
from collections.abc import Sequence
from typing import Any, Final

import torch

from grader.fabric.buffers import bits, dtype_name

_HEADER: Final = struct.Struct("!4sIQ")
_MAGIC: Final = b"TPb1"
MAX_JSON_NBYTES: Final = 1 << 20
MAX_NBYTES: Final = 256 << 20
"""Longest frame that a rank may send."""
_MAX_DIMENSIONS: Final = 64

DTYPES: Final = {
    dtype_name(dtype): dtype
    for dtype in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64,
        torch.complex128, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
        torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.float8_e4m3fn,
        torch.float8_e5m2,
    )
}  # fmt: skip

Message = dict[str, Any]


class WireError(ValueError):
    """What came is no frame, or describes what cannot be."""


def pack(message: Message, tensors: Sequence[torch.Tensor] = ()) -> bytes:
    """One frame."""
    described = [[dtype_name(t.dtype), list(t.shape), t.device.type] for t in tensors]
    text = json.dumps({**message, "tensors": described}, separators=(",", ":")).encode()
    parts = [
        bits(tensor.contiguous()).numpy().tobytes()
        for tensor in tensors
        if not tensor.is_meta and tensor.numel()
    ]
    block = b"".join(parts)
    return _HEADER.pack(_MAGIC, len(text), len(block)) + text + block


class Reader:
    """Cuts a stream from a rank into frames, as it comes in."""

    def __init__(self, max_nbytes: int = MAX_NBYTES) -> None:
        self._max = max_nbytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[Message, list[torch.Tensor]]]:
        """Take bytes; returns the frames that they complete. Raises `WireError`."""
        self._buffer += data
        frames = []
        while len(self._buffer) >= _HEADER.size:
            magic, text_nbytes, nbytes = _HEADER.unpack_from(self._buffer)
            if magic != _MAGIC:
                raise WireError("not a frame")
            if text_nbytes > MAX_JSON_NBYTES or nbytes > self._max:
                raise WireError(f"a frame of {text_nbytes} + {nbytes} bytes")
            middle = _HEADER.size + text_nbytes
            end = middle + nbytes
            if len(self._buffer) < end:
                break
            with memoryview(self._buffer) as view:
                text, block = bytes(view[_HEADER.size : middle]), bytearray(view[middle:end])
            del self._buffer[:end]
            frames.append(_unpacked(text, block))
        return frames


def receive(channel: socket.socket) -> tuple[Message, list[torch.Tensor]]:
    """One frame from a blocking socket. Raises EOFError when the other end has closed it."""
    magic, text_nbytes, nbytes = _HEADER.unpack(_exactly(channel, _HEADER.size))
    if magic != _MAGIC:
        raise WireError("not a frame")
    text = bytes(_exactly(channel, text_nbytes))
    return _unpacked(text, _exactly(channel, nbytes))


def _exactly(channel: socket.socket, nbytes: int) -> bytearray:
    data = bytearray(nbytes)
    view = memoryview(data)
    while view:
        count = channel.recv_into(view)
        if count == 0:
            raise EOFError("the broker has closed the connection")
        view = view[count:]
    return data


def _unpacked(text: bytes, block: bytearray) -> tuple[Message, list[torch.Tensor]]:
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WireError(f"not JSON: {error!s:.200}") from error
    if type(message) is not dict or type(message.get("tensors")) is not list:
        raise WireError("not an object with a list of tensors")
    tensors, begin = [], 0
    for described in message.pop("tensors"):
        tensor, begin = _tensor(described, block, begin)
        tensors.append(tensor)
    if begin != len(block):
        raise WireError(f"{len(block)} bytes, of which the tensors take {begin}")
    return message, tensors


def _tensor(described: object, block: bytearray, begin: int) -> tuple[torch.Tensor, int]:
    if type(described) is not list or len(described) != 3:
        raise WireError("a tensor is described by dtype, shape and device")
    name, sizes, device = described
    if type(name) is not str or name not in DTYPES or device not in ("cpu", "meta", "cuda"):
        raise WireError(f"no such tensor: {described!s:.200}")
    dtype, shape = DTYPES[name], shape_of(sizes)
    if device == "meta":
        return torch.empty(shape, dtype=dtype, device="meta"), begin
    numel = math.prod(shape)
    end = begin + numel * dtype.itemsize
    if end > len(block):
        raise WireError(f"a tensor of {end - begin} bytes, where {len(block) - begin} are left")
    if numel == 0:
        return torch.empty(shape, dtype=dtype), begin
    part = bytearray(memoryview(block)[begin:end])  # aligned, and a tensor's own
    return torch.frombuffer(part, dtype=torch.uint8).view(dtype).view(shape), end


def shape_of(sizes: object) -> tuple[int, ...]:
    """A shape, checked. Raises `WireError`."""
    if type(sizes) is not list or len(sizes) > _MAX_DIMENSIONS:
        raise WireError("a shape is a list of sizes")
    shape = tuple(sizes)
    if any(type(size) is not int or not 0 <= size < 1 << 48 for size in shape):
        raise WireError(f"no such shape: {sizes!s:.200}")
    if math.prod(size for size in shape if size) >= 1 << 48:
        raise WireError(f"no such shape: {sizes!s:.200}")
    return shape
