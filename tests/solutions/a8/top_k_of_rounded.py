"""Chooses by probabilities that were rounded to 16 bits."""

TASK = "a8.top_k_router"
EXPECT = {
    "status": "failed",
    "check": "chooses the k best",
    "cause": "probabilities that are rounded",
}


def top_k_router(logits, k, normalize=True):
    probabilities = logits.softmax(1)
    weights, indices = probabilities.sort(dim=1, descending=True, stable=True)
    weights, indices = weights[:, :k], indices[:, :k]
    return (weights / weights.sum(1, keepdim=True) if normalize else weights), indices
