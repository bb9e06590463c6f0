# ruff: noqa: F821 (names of the reference)
"""Tries micro-batches of one sequence, computes everything again, and shards nothing."""

TASK = "a9.plan"
EXPECT = {
    "status": "failed",
    "check": "as good as any",
    "cause": "is tried with micro_batch=4 or zero=1 or",
}

_all = _candidates


def _candidates(model, cluster, batch):
    for each in _all(model, cluster, batch):
        if each.micro_batch == 1 and not each.zero and each.recomputation in ("none", "full"):
            yield each
