# ruff: noqa
"""Never returns."""

TASK = "a1.broadcast"
SEEN = "did not end|seconds|time"


# BEGIN SUBMISSION
def broadcast(tensor, src, group=None):
    while True:
        pass
