# ruff: noqa: F821 (names of the reference)
"""Stages never wait."""

TASK = "a9.step_time"
EXPECT = {"status": "failed", "check": "bubble", "cause": "the bubble is left out"}

_right = step_time


def step_time(model, plan, cluster):
    found = _right(model, plan, cluster)
    return found - found.parts["bubble"]
