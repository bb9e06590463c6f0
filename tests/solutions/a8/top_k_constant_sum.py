"""The sum of the weights counts as a constant in backward."""

from .router import top_k_router as Solved

TASK = "a8.top_k_router"
EXPECT = {
    "status": "failed",
    "check": "gives the logits their gradient",
    "cause": "the sum in the denominator is detached",
}


def top_k_router(logits, k, normalize=True):
    weights, indices = Solved(logits, k, normalize=False)
    return (weights / weights.detach().sum(1, keepdim=True) if normalize else weights), indices
