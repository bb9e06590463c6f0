# ruff: noqa: F821 (names of the reference)
"""What does not fit is not told."""

TASK = "a9.plan"
EXPECT = {
    "status": "failed",
    "check": "refuses what does not fit",
    "cause": "dropped without a reason",
}

_right = plan


def plan(model, cluster, batch_tokens, candidates=None):
    return Ranking(_right(model, cluster, batch_tokens, candidates).best, [])
