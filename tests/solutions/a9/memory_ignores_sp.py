# ruff: noqa: F821 (names of the reference)
"""Norms and dropouts are whole on every rank, with sequence parallelism or without."""

TASK = "a9.memory_per_device"
EXPECT = {
    "status": "failed",
    "check": "activations of a layer",
    "cause": "sequence_parallel is ignored",
}

_right = _kept


def _kept(model, plan, recomputation):
    import dataclasses

    return _right(model, dataclasses.replace(plan, sequence_parallel=False), recomputation)
