"""Sizes are taken as they come."""

TASK = "a9.build_mesh"
EXPECT = {
    "status": "failed",
    "check": "refuses sizes",
    "cause": "the product of tp, cp, pp and dp must be world_size",
}


def _check_sizes(world_size, sizes, ep):
    pass
