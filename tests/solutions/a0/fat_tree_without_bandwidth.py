# ruff: noqa: F821 (names of the reference)
"""Links that do not say how fast they are."""

TASK = "a0.fat_tree"
EXPECT = {
    "status": "failed",
    "check": "bandwidth",
    "cause": "edges carry `bandwidth`",
}


_old = fat_tree


def fat_tree(k, bandwidth):
    tree = _old(k, bandwidth)
    for _, _, edge in tree.edges(data=True):
        edge.clear()
    return tree
