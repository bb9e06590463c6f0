# ruff: noqa: F821 (names of the reference)
"""Three passes, also where everything is computed again."""

TASK = "a9.step_time"
EXPECT = {"status": "failed", "check": "computed again", "cause": "does not change the time"}

_right = step_time


def step_time(model, plan, cluster):
    import dataclasses

    return _right(model, dataclasses.replace(plan, recomputation="none"), cluster)
