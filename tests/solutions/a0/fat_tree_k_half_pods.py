# ruff: noqa: F821 (names of the reference)
"""Half of the pods."""

TASK = "a0.fat_tree"
EXPECT = {
    "status": "failed",
    "check": "k³/4 hosts",
    "cause": "",
}


_old = fat_tree


def fat_tree(k, bandwidth):
    tree = _old(k, bandwidth)
    gone = [node for node in tree if len(node) > 2 and node[1] >= max(1, k // 2)]
    tree.remove_nodes_from(gone)
    return tree
