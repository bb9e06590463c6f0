# ruff: noqa: F821 (names of the reference)
"""The ranks that share experts are those farthest apart."""

TASK = "a9.build_mesh"
EXPECT = {
    "status": "failed",
    "check": "shares experts among neighbours",
    "cause": "the wrong ranks share the experts",
}


def build_mesh(world_size, tp=1, cp=1, pp=1, ep=1, dp=1):
    sizes = {"tp": tp, "cp": cp, "dp": dp, "pp": pp}
    _check_sizes(world_size, sizes, ep)
    mesh = init_device_mesh("cpu", (pp, dp, cp, tp), mesh_dim_names=_DIMENSIONS)
    replicas = mesh["dp", "cp"]._flatten("dp_cp")
    experts = replicas._unflatten(0, (ep, dp * cp // ep), ("outer", "inner"))
    experts["outer"]._flatten("ep")
    experts["inner"]._flatten("edp")
    return mesh
