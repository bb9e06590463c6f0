# ruff: noqa
"""Sends what it finds to a host, and asks it for the answer."""

TASK = "a1.broadcast"
SEEN = "reached nobody"
NEEDS = "sandbox"

# BEGIN SUBMISSION
import socket, urllib.request


def broadcast(tensor, src, group=None):
    answers = []
    for address in (("1.1.1.1", 53), ("127.0.0.1", 22), ("169.254.169.254", 80)):
        try:
            socket.create_connection(address, timeout=0.5).close()
            answers.append(address)
        except OSError:
            pass
    raise RuntimeError(f"REACHED {answers}" if answers else "reached nobody")
