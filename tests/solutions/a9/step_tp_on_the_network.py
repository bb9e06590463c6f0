# ruff: noqa: F821 (names of the reference)
"""All groups are thought to lie across nodes."""

TASK = "a9.step_time"
EXPECT = {"status": "failed", "check": "the link it crosses", "cause": "charged to the other links"}


def _link(cluster, span, share=CARD):
    return _Link(cluster.inter_latency, share * cluster.inter_bandwidth)
