"""Sizes are taken as they come."""

TASK = "a9.build_mesh"
EXPECT = {"status": "failed", "check": "refuses sizes", "cause": "the argument is not checked"}


def _check_sizes(world_size, sizes, ep):
    pass
