# ruff: noqa
"""Prints without end."""

TASK = "a1.broadcast"
SEEN = "output|print"
QUICK = True


# BEGIN SUBMISSION
def broadcast(tensor, src, group=None):
    while True:
        print("x" * 100_000)
