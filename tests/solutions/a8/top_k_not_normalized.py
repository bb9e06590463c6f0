"""The softmax's values, whatever is asked for."""

from .router import top_k_router as Solved

TASK = "a8.top_k_router"
EXPECT = {
    "status": "failed",
    "check": "chooses the k best",
    "cause": "the weights are not normalized",
}


def top_k_router(logits, k, normalize=True):
    return Solved(logits, k, normalize=False)
