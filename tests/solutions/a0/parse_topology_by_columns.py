# ruff: noqa: F821 (names of the reference)
"""Right: the reference, after tidying the text in another way."""

TASK = "a0.parse_topology"
EXPECT = "passed"


_old = parse_topology


def parse_topology(text):
    tidy = "\n".join(line.rstrip("\r") for line in text.splitlines())
    found = _old(tidy + "\n" * text.endswith("\n"))
    order = sorted(found.links, key=str, reverse=True)
    return Topology(
        list(found.gpus),
        list(found.nics),
        {pair: found.links[pair] for pair in order},
        {gpu: list(cores) for gpu, cores in found.cpu_affinity.items()},
        {gpu: list(nodes) for gpu, nodes in found.numa_affinity.items()},
        found.nic_names,
    )
