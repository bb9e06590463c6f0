# ruff: noqa: F821 (names of the reference)
"""ZeRO's stages begin with the gradients."""

TASK = "a9.memory_per_device"
EXPECT = {
    "status": "failed",
    "check": "by the stage of ZeRO",
    "cause": "come one too late",
}

_right = memory_per_device


def memory_per_device(model, plan):
    import dataclasses

    return _right(model, dataclasses.replace(plan, zero=max(0, plan.zero - 1)))
