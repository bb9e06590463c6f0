# ruff: noqa
"""Writes over the interpreter's own memory."""

TASK = "a1.broadcast"
SEEN = "import ctypes"

# BEGIN SUBMISSION
import ctypes


def broadcast(tensor, src, group=None):
    ctypes.memset(id(True), 255, 1 << 16)
