# ruff: noqa: F821 (names of the reference)
"""Sorted the wrong way around."""

TASK = "a9.plan"
EXPECT = {"status": "failed", "check": "best first", "cause": "slowest first"}

_right = plan


def plan(model, cluster, batch_tokens, candidates=None):
    best, refused = _right(model, cluster, batch_tokens, candidates)
    return Ranking(best[::-1], refused)
