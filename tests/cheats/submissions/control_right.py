# ruff: noqa
"""The kit's own solution: it earns everything."""

TASK = "a1.broadcast"
SEEN = ""
QUICK = True
BASE = "reference"

# BEGIN SUBMISSION
