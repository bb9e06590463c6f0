"""Of equal logits the higher index."""

from .router import top_k_router as Solved

TASK = "a8.top_k_router"
EXPECT = {
    "status": "failed",
    "check": "breaks ties",
    "cause": "the higher index is taken",
}


def top_k_router(logits, k, normalize=True):
    last = logits.shape[1] - 1
    _, indices = Solved(logits.flip(1), k)
    indices = last - indices
    weights = logits.softmax(1).gather(1, indices)
    return (weights / weights.sum(1, keepdim=True) if normalize else weights), indices
