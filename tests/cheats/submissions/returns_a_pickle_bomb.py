# ruff: noqa
"""What it returns would run a command when unpickled."""

TASK = "a1.neighbour_exchange"
SEEN = "Bomb|__reduce__"

# BEGIN SUBMISSION
import os


class Bomb:
    def __reduce__(self):
        return os.system, ("touch /tmp/tinyparallel-witness",)


def neighbour_exchange(tensor, group=None):
    return Bomb(), Bomb()
