# ruff: noqa: F821 (names of the reference)
"""All traffic at the rate of NVLink."""

TASK = "a9.step_time"
EXPECT = {
    "status": "failed",
    "check": "the link it crosses",
    "cause": "the traffic of tp is charged to the links inside nodes",
}


def _link(cluster, span, share=CARD):
    return _Link(cluster.intra_latency, cluster.intra_bandwidth)
