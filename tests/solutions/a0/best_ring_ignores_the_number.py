# ruff: noqa: F821 (names of the reference)
"""All NVLinks are alike, however many are bonded."""

from dataclasses import replace

TASK = "a0.best_ring"
EXPECT = {
    "status": "failed",
    "check": "slowest link",
    "cause": "number of bonded NVLinks",
}


_old = best_ring


def best_ring(topology):
    links = {
        pair: "NV1" if kind.startswith("NV") else kind for pair, kind in topology.links.items()
    }
    return _old(replace(topology, links=links))
