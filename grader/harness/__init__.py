"""Workers: student code in processes of its own, and what comes back as data.

Importing this package does not import torch, so that a server can warm up meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grader.harness.client import WorkerServer, WorkerServerError, call_in_process
from grader.harness.errors import DecodeError, EncodeError
from grader.harness.reply import Frame, Limits, RaisedError, Reply, Status
from grader.harness.worker import send_progress

if TYPE_CHECKING:
    from grader.harness.codec import Given, decode, encode

__all__ = [
    "DecodeError",
    "EncodeError",
    "Frame",
    "Given",
    "Limits",
    "RaisedError",
    "Reply",
    "Status",
    "WorkerServer",
    "WorkerServerError",
    "call_in_process",
    "decode",
    "encode",
    "send_progress",
]


def __getattr__(name: str) -> Any:
    if name in ("Given", "decode", "encode"):
        from grader.harness import codec

        return getattr(codec, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
