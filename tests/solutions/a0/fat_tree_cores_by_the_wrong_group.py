# ruff: noqa: F821 (names of the reference)
"""All aggregation switches of a pod at the same cores."""

TASK = "a0.fat_tree"
EXPECT = {
    "status": "failed",
    "check": "diameter 6 and full bisection",
    "cause": "",
}


_old = fat_tree


def fat_tree(k, bandwidth):
    tree = _old(k, bandwidth)
    half = k // 2
    for pod in range(k):
        for number in range(1, half):
            for core in range(half):
                tree.remove_edge(("core", number * half + core), ("aggregation", pod, number))
                tree.add_edge(("core", core), ("aggregation", pod, number), bandwidth=bandwidth)
    return tree
