"""The all-gather, and then the product."""

from .sequence import gather_from_sequence_parallel

TASK = "a5.all_gather_matmul"
EXPECT = {
    "status": "failed",
    "check": "communicates while it computes",
    "cause": "the collective begins only when the product is done",
}


def all_gather_matmul(a, b, group=None):
    return gather_from_sequence_parallel(a, group) @ b
