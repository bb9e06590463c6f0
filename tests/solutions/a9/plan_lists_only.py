# ruff: noqa: F821 (names of the reference)
"""Takes an empty list of candidates for none given."""

TASK = "a9.plan"
EXPECT = {"status": "failed", "check": "takes any candidates", "cause": "is taken for None"}

_right = plan


def plan(model, cluster, batch_tokens, candidates=None):
    return _right(model, cluster, batch_tokens, list(candidates or ()) or None)
