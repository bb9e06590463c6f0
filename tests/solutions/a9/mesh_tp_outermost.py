# ruff: noqa: F821 (names of the reference)
"""The dimensions in the order in which the arguments stand: tp has the largest stride."""

TASK = "a9.build_mesh"
EXPECT = {"status": "failed", "check": "from the inside out", "cause": "the innermost dimension"}


def build_mesh(world_size, tp=1, cp=1, pp=1, ep=1, dp=1):
    sizes = {"tp": tp, "cp": cp, "dp": dp, "pp": pp}
    _check_sizes(world_size, sizes, ep)
    return init_device_mesh("cpu", (tp, cp, dp, pp), mesh_dim_names=("tp", "cp", "dp", "pp"))
