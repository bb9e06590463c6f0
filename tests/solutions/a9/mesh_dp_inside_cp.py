# ruff: noqa: F821 (names of the reference)
"""Data-parallel ranks are nearer than context-parallel ones."""

TASK = "a9.build_mesh"
EXPECT = {
    "status": "failed",
    "check": "from the inside out",
    "cause": "from the inside out the dimensions are tp, dp, cp:",
}


def build_mesh(world_size, tp=1, cp=1, pp=1, ep=1, dp=1):
    sizes = {"tp": tp, "cp": cp, "dp": dp, "pp": pp}
    _check_sizes(world_size, sizes, ep)
    return init_device_mesh("cpu", (pp, cp, dp, tp), mesh_dim_names=("pp", "cp", "dp", "tp"))
