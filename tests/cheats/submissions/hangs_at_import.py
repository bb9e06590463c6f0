# ruff: noqa
"""Never gets as far as to be called."""

TASK = "a1.broadcast"
SEEN = "did not end|seconds|time"

# BEGIN SUBMISSION
while True:
    pass
