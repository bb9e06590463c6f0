# ruff: noqa
"""SystemExit is not an Exception."""

TASK = "a1.broadcast"
SEEN = "SystemExit"


# BEGIN SUBMISSION
def broadcast(tensor, src, group=None):
    raise SystemExit(0)
