# ruff: noqa: F821 (names of the reference)
"""Layouts that look hopeless are not told of."""

TASK = "a9.plan"
EXPECT = {"status": "failed", "check": "as good as any", "cause": "layouts are dropped"}

_all = _layouts


def _layouts(model, devices):
    return (each for each in _all(model, devices) if each["tp"] <= 8)
