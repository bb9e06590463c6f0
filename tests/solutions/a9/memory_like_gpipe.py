# ruff: noqa: F821 (names of the reference)
"""All micro-batches are in flight."""

TASK = "a9.memory_per_device"
EXPECT = {"status": "failed", "check": "holds at once", "cause": "all micro-batches are counted"}

_right = memory_per_device


def memory_per_device(model, plan):
    one = _stage_layers(model, plan) * _kept(model, plan, plan.recomputation)
    return _right(model, plan)._replace(activations=plan.micro_batches * one)
