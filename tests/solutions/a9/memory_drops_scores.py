# ruff: noqa: F821 (names of the reference)
"""Scores never count: as if attention always were computed again."""

TASK = "a9.memory_per_device"
EXPECT = {
    "status": "failed",
    "check": "activations of a layer",
    "cause": "the scores (5as/h) are left out",
}

_right = _kept


def _kept(model, plan, recomputation):
    return _right(model, plan, "selective" if recomputation == "none" else recomputation)
