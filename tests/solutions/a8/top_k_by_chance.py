"""torch.topk, which breaks ties as it likes."""

import torch

TASK = "a8.top_k_router"
EXPECT = {
    "status": "failed",
    "check": "breaks ties",
    "cause": "ties are broken by chance",
}


def top_k_router(logits, k, normalize=True):
    if not 1 <= k <= logits.shape[1]:
        raise ValueError(f"k = {k} of {logits.shape[1]} experts")
    weights, indices = torch.topk(
        logits.float().softmax(1) if logits.dtype == torch.bfloat16 else logits.softmax(1), k
    )
    if normalize:
        weights = weights / weights.sum(1, keepdim=True)
    return weights.to(logits.dtype), indices
