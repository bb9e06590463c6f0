# ruff: noqa: F821 (names of the reference)
"""ZeRO divides by dp alone."""

TASK = "a9.memory_per_device"
EXPECT = {"status": "failed", "check": "by the stage of ZeRO", "cause": "ZeRO divides by dp alone"}

_right = memory_per_device


def memory_per_device(model, plan):
    found = _right(model, plan)
    if not plan.zero or plan.cp == 1:
        return found
    states = [found.weights, found.gradients, found.optimizer]
    for part in range(3):
        if plan.zero >= 3 - part:
            states[part] *= plan.cp
    return Memory(*states, found.activations)
