# ruff: noqa: F821 (names of the reference)
"""Each pair of devices once."""

TASK = "a0.parse_topology"
EXPECT = {
    "status": "failed",
    "check": "finds the GPUs",
    "cause": "one order of each pair",
}


_old = parse_topology


def parse_topology(text):
    found = _old(text)
    links = {(a, b): kind for (a, b), kind in found.links.items() if a <= b}
    return Topology(
        found.gpus, found.nics, links, found.cpu_affinity, found.numa_affinity, found.nic_names
    )
