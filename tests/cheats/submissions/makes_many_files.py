# ruff: noqa
"""A million empty files, deep folders, and modes that nobody can remove."""

TASK = "a1.broadcast"
SEEN = "open|os.chmod"
NEEDS = "sandbox"

# BEGIN SUBMISSION
import os


def broadcast(tensor, src, group=None):
    try:
        for number in range(200_000):
            with open(f"/tmp/tinyparallel-many-{number}", "w"):
                pass
    except OSError:
        pass
    os.makedirs("/tmp/" + "/".join(["d"] * 400), exist_ok=True)
    os.chmod("/tmp/d", 0)
