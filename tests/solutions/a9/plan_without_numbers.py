# ruff: noqa: F821 (names of the reference)
"""Says that a plan does not fit, not why."""

TASK = "a9.plan"
EXPECT = {"status": "failed", "check": "with the numbers", "cause": "must name the numbers"}

_right = plan


def plan(model, cluster, batch_tokens, candidates=None):
    best, refused = _right(model, cluster, batch_tokens, candidates)
    return Ranking(best, [each._replace(reason="does not fit") for each in refused])
