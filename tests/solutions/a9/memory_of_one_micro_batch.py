# ruff: noqa: F821 (names of the reference)
"""One micro-batch at a time, although a pipeline fills up first."""

TASK = "a9.memory_per_device"
EXPECT = {"status": "failed", "check": "holds at once", "cause": "one micro-batch is counted"}

_right = memory_per_device


def memory_per_device(model, plan):
    one = _stage_layers(model, plan) * _kept(model, plan, plan.recomputation)
    return _right(model, plan)._replace(activations=one)
