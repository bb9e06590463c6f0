# ruff: noqa
"""Ends the process as if all had gone well."""

TASK = "a1.broadcast"
SEEN = "os._exit"
QUICK = True

# BEGIN SUBMISSION
import os


def broadcast(tensor, src, group=None):
    os._exit(0)
