# ruff: noqa: F821 (names of the reference)
"""The bubble of 1F1B, also where stages are interleaved."""

TASK = "a9.step_time"
EXPECT = {"status": "failed", "check": "bubble", "cause": "chunks do not make the bubble smaller"}

_right = step_time


def step_time(model, plan, cluster):
    found = _right(model, plan, cluster)
    return found + (plan.chunks - 1) * found.parts["bubble"]
