# ruff: noqa: F821 (names of the reference)
"""Refuses stages of unequal numbers of layers."""

TASK = "a9.plan"
EXPECT = {
    "status": "failed",
    "check": "refuses what does not fit",
    "cause": "layers need not be divided evenly",
}

_right = _refusal


def _refusal(model, plan, cluster, batch):
    if plan.devices == cluster.devices and model.layers % (plan.pp * plan.chunks):
        return "division", f"{model.layers} layers cannot be divided by {plan.pp}"
    return _right(model, plan, cluster, batch)
