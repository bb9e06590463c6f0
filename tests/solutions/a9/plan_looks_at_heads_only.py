# ruff: noqa: F821 (names of the reference)
"""Of all that must be divided only the heads are looked at."""

TASK = "a9.plan"
EXPECT = {
    "status": "failed",
    "check": "refuses what does not fit",
    "cause": "key/value heads cannot be divided by tp=8: this is not checked",
}

_right = _refusal


def _refusal(model, plan, cluster, batch):
    found = _right(model, plan, cluster, batch)
    unseen = model.heads % plan.tp == 0 and plan.ep == 1
    return None if found and found[0] == "division" and unseen else found
