# ruff: noqa: F821 (names of the reference)
"""Dimensions of one rank are left out."""

TASK = "a9.build_mesh"
EXPECT = {
    "status": "failed",
    "check": "also of size 1",
    "cause": "a dimension of size 1 is left out",
}


def build_mesh(world_size, tp=1, cp=1, pp=1, ep=1, dp=1):
    sizes = {"pp": pp, "dp": dp, "cp": cp, "tp": tp}
    names = [name for name in sizes if sizes[name] > 1] or ["dp"]
    return init_device_mesh("cpu", tuple(sizes[n] for n in names), mesh_dim_names=tuple(names))
