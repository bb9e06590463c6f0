# ruff: noqa
"""A child of its own session that goes on when all is over."""

TASK = "a1.broadcast"
SEEN = "os.fork|os.setsid"

# BEGIN SUBMISSION
import os, time


def broadcast(tensor, src, group=None):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True:
                time.sleep(0.1)
        os._exit(0)
