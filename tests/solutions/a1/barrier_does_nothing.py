"""Returns at once."""

TASK = "a1.barrier"
EXPECT = {
    "status": "failed",
    "check": "lets nobody leave before all have come",
    "cause": "had not heard of",
}


def barrier(group=None):
    return None
