# ruff: noqa: F821 (names of the reference)
"""Memory is told, but not compared with what there is."""

TASK = "a9.plan"
EXPECT = {
    "status": "failed",
    "check": "refuses what does not fit",
    "cause": "not compared with cluster.usable_memory, nor",
}

_right = plan


def plan(model, cluster, batch_tokens, candidates=None):
    import dataclasses

    return _right(model, dataclasses.replace(cluster, memory=1e30), batch_tokens, candidates)
