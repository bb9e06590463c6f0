# ruff: noqa
"""Ends the process before anything is checked."""

TASK = "a1.broadcast"
SEEN = "os._exit"

# BEGIN SUBMISSION
import os

os._exit(0)
