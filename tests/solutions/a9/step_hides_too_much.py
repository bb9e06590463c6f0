# ruff: noqa: F821 (names of the reference)
"""Traffic hides behind computation that it is longer than."""

TASK = "a9.step_time"
EXPECT = {"status": "failed", "check": "hides traffic", "cause": "more traffic is hidden"}

_right = step_time


def step_time(model, plan, cluster):
    found = _right(model, plan, cluster)
    return found - 0.9 * found.parts["compute"] * (found.parts["dp"] > found.parts["compute"])
