# ruff: noqa: F821 (names of the reference)
"""A subclass that keeps the experts' groups itself, made one by one; only public interfaces."""

TASK = "a9.build_mesh"
EXPECT = "passed"


class ExpertMesh(DeviceMesh):
    more = None

    def get_group(self, mesh_dim=None):
        if self.more and mesh_dim in self.more:
            return self.more[mesh_dim]
        return super().get_group(mesh_dim)


def build_mesh(world_size, tp=1, cp=1, pp=1, ep=1, dp=1):
    sizes = {"tp": tp, "cp": cp, "dp": dp, "pp": pp}
    _check_sizes(world_size, sizes, ep)
    ranks = torch.arange(world_size).reshape(pp, dp, cp, tp)
    mesh = ExpertMesh("cpu", ranks, mesh_dim_names=("pp", "dp", "cp", "tp"))
    replicas = ranks.permute(0, 3, 1, 2).reshape(pp * tp, dp * cp)
    lists = {
        "dp_cp": replicas.tolist(),
        "ep": replicas.reshape(-1, ep).tolist(),
        "edp": replicas.reshape(pp * tp, -1, ep).transpose(1, 2).reshape(pp * tp * ep, -1).tolist(),
    }
    mesh.more = {}
    for name, groups in lists.items():
        for members in groups:
            group = dist.new_group(members)
            if dist.get_rank() in members:
                mesh.more[name] = group
    return mesh
