# ruff: noqa: F821 (names of the reference)
"""The plan that needs the least memory comes first."""

TASK = "a9.plan"
EXPECT = {"status": "failed", "check": "best first", "cause": "sorted by their memory"}

_right = plan


def plan(model, cluster, batch_tokens, candidates=None):
    best, refused = _right(model, cluster, batch_tokens, candidates)
    return Ranking(sorted(best, key=lambda each: each.memory.total), refused)
