# ruff: noqa: F821 (names of the reference)
"""By its step_time a deep pipeline costs nothing."""

TASK = "a9.plan"
EXPECT = {"status": "failed", "check": "puts GPT-3", "cause": "step_time leaves the bubble out"}

_right = step_time


def step_time(model, plan, cluster):
    found = _right(model, plan, cluster)
    return found - found.parts["bubble"] - found.parts["pp"]
