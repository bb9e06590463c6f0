# ruff: noqa: F821 (names of the reference)
"""Keys and values go around once a step, not for every micro-batch."""

TASK = "a9.step_time"
EXPECT = {"status": "failed", "check": "the link it crosses", "cause": "counted once a step"}

_right = _messages


def _messages(model, plan, cluster):
    found = _right(model, plan, cluster)
    seconds, nbytes = found["cp"]
    return found | {"cp": (seconds / plan.micro_batches, nbytes)}
