# ruff: noqa: F821 (names of the reference)
"""The last two cells are CPU and NUMA affinity."""

TASK = "a0.parse_topology"
EXPECT = {
    "status": "failed",
    "check": "overlooks colours",
    "cause": "wrong without",
}


_old = parse_topology


def parse_topology(text):
    found = _old(text)
    if "NUMA Affinity" not in text:
        return Topology(
            found.gpus, found.nics, found.links, found.numa_affinity, found.cpu_affinity
        )
    return found
