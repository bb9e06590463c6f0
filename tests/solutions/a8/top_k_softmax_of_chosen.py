"""Right: the softmax of the chosen logits alone; not normalized, exp(logit − logsumexp)."""

import torch

TASK = "a8.top_k_router"
EXPECT = "passed"


def top_k_router(logits, k, normalize=True):
    if k < 1 or k > logits.size(1):
        raise ValueError(f"k = {k} of {logits.size(1)} experts")
    indices = torch.argsort(-logits.detach().double(), dim=1, stable=True)[:, :k]
    wide = logits.to(torch.promote_types(torch.float32, logits.dtype))
    chosen = wide.gather(1, indices)
    whole = wide.logsumexp(1, keepdim=True)
    weights = chosen.softmax(1) if normalize else (chosen - whole).exp()
    return weights.to(logits.dtype), indices
