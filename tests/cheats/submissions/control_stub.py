# ruff: noqa
"""The stub as it was handed out."""

TASK = "a1.broadcast"
SEEN = "implemented"

# BEGIN SUBMISSION
