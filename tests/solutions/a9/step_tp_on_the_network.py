# ruff: noqa: F821 (names of the reference)
"""All groups are thought to lie across nodes."""

TASK = "a9.step_time"
EXPECT = {
    "status": "failed",
    "check": "the link it crosses",
    "cause": "the traffic of tp is charged to the links between nodes",
}


def _link(cluster, span, share=CARD):
    return _Link(cluster.inter_latency, share * cluster.inter_bandwidth)
