"""The all-gather, and then the product."""

from .sequence import gather_from_sequence_parallel

TASK = "a5.all_gather_matmul"
EXPECT = {
    "status": "failed",
    "check": "communicates while it computes",
    "cause": "run one after the other, each in one piece",
}


def all_gather_matmul(a, b, group=None):
    return gather_from_sequence_parallel(a, group) @ b
