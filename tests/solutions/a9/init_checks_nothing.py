"""Whatever the environment says is believed, or stumbled over."""

import os

TASK = "a9.initialize"
EXPECT = {
    "status": "failed",
    "check": "refuses an environment",
    "cause": "not checked: WORLD_SIZE is missing",
}


def _place():
    rank = int(os.environ.get("RANK", 0))
    world_size = int(os.environ.get("WORLD_SIZE", 1))
    local = int(os.environ.get("LOCAL_RANK", rank))
    return rank, world_size, local, int(os.environ.get("LOCAL_WORLD_SIZE", world_size))
