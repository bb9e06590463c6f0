# ruff: noqa: F821 (names of the reference)
"""Right: core switches in columns where the handout has rows."""

TASK = "a0.fat_tree"
EXPECT = "passed"


def fat_tree(k, bandwidth):
    if k < 2 or k & 1 or bandwidth <= 0:
        raise ValueError(f"k={k}, bandwidth={bandwidth}")
    half, tree = k // 2, nx.Graph()
    for pod in range(k):
        for i in range(half):
            for j in range(half):
                tree.add_edge(f"a{pod}.{i}", f"e{pod}.{j}")
                tree.add_edge(f"a{pod}.{i}", f"c{j * half + i}")
                tree.add_edge(f"e{pod}.{i}", f"h{pod}.{i}.{j}")
    for node, data in tree.nodes.items():
        data["kind"] = "host" if node[0] == "h" else "switch"
    nx.set_edge_attributes(tree, bandwidth, "bandwidth")
    return tree
