"""Frames on a stream socket: a JSON object and a block of bytes, each with its length."""

from __future__ import annotations

import json
import socket
import struct
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

_HEADER: Final = struct.Struct("!4sIQ")
_MAGIC: Final = b"TPf1"
MAX_JSON_NBYTES: Final = 32 << 20
"""Longest JSON part: parsed, it may take some twenty times the memory."""


class FrameError(ValueError):
    """The stream does not hold a frame, or one beyond its limit."""


def pack(message: dict[str, Any], blob: bytes = b"") -> list[bytes]:
    """The parts of one frame, to be sent one after the other.

    Raises:
        FrameError: the JSON part is longer than ``MAX_JSON_NBYTES``.
    """
    text = json.dumps(message, allow_nan=False, separators=(",", ":")).encode("ascii")
    if len(text) > MAX_JSON_NBYTES:
        raise FrameError(f"a tree of {len(text)} bytes of JSON; the limit is {MAX_JSON_NBYTES}")
    return [_HEADER.pack(_MAGIC, len(text), len(blob)) + text, blob]


def _no_constant(text: str) -> NoReturn:
    raise FrameError(f"{text} is not JSON")


def _parse(text: bytes) -> dict[str, Any]:
    try:
        message = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"not JSON: {error!s:.200}") from error
    if type(message) is not dict:
        raise FrameError("not a JSON object")
    return message


@dataclass
class FrameReader:
    """Cuts a stream into frames, as it comes in; ``max_nbytes`` bounds each frame."""

    max_nbytes: int
    _buffer: bytearray = field(default_factory=bytearray)

    @property
    def pending(self) -> int:
        """Bytes received that do not make a whole frame yet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[tuple[dict[str, Any], bytes]]:
        """Take bytes; returns the frames that they complete.

        Raises:
            FrameError: no frame, or one that says it is longer than the limit.
        """
        self._buffer += data
        frames: list[tuple[dict[str, Any], bytes]] = []
        while len(self._buffer) >= _HEADER.size:
            magic, text_nbytes, blob_nbytes = _HEADER.unpack_from(self._buffer)
            if magic != _MAGIC:
                raise FrameError("not a frame")
            if text_nbytes > MAX_JSON_NBYTES or text_nbytes + blob_nbytes > self.max_nbytes:
                raise FrameError(
                    f"a frame of {text_nbytes + blob_nbytes} bytes; the limit is {self.max_nbytes}"
                )
            middle = _HEADER.size + text_nbytes
            end = middle + blob_nbytes
            if len(self._buffer) < end:
                break
            with memoryview(self._buffer) as view:
                text, blob = bytes(view[_HEADER.size : middle]), bytes(view[middle:end])
            del self._buffer[:end]
            frames.append((_parse(text), blob))
        return frames


def send(channel: socket.socket, message: dict[str, Any], blob: bytes = b"") -> None:
    """Send one frame on a blocking socket."""
    for part in pack(message, blob):
        channel.sendall(part)


def receive(channel: socket.socket) -> tuple[dict[str, Any], bytes]:
    """Read exactly one frame from a blocking socket, from a sender that is trusted.

    Raises:
        EOFError: the other end closed before a whole frame.
    """
    header = _exactly(channel, _HEADER.size)
    magic, text_nbytes, blob_nbytes = _HEADER.unpack(header)
    if magic != _MAGIC:
        raise FrameError("not a frame")
    return _parse(bytes(_exactly(channel, text_nbytes))), bytes(_exactly(channel, blob_nbytes))


def _exactly(channel: socket.socket, nbytes: int) -> bytearray:
    data = bytearray(nbytes)
    view = memoryview(data)
    while view:
        count = channel.recv_into(view)
        if count == 0:
            raise EOFError(f"the channel closed with {len(view)} bytes of a frame to come")
        view = view[count:]
    return data
