"""One argmax after the other; normalized by a softmax over the chosen alone."""

import torch

TASK = "a8.top_k_router"
EXPECT = "passed"


def top_k_router(logits, k, normalize=True):
    experts = logits.shape[1]
    if k < 1 or k > experts:
        raise ValueError(f"{k} of {experts} experts")
    left = logits.detach().clone()
    chosen = []
    for _ in range(k):
        best = left.argmax(1, keepdim=True) if len(left) else left[:, :1].long()
        chosen.append(best)
        left.scatter_(1, best, float("-inf"))
    indices = torch.cat(chosen, 1)
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if normalize:
        weights = wide.gather(1, indices).softmax(1)
    else:
        weights = wide.log_softmax(1).gather(1, indices).exp()
    return weights.to(logits.dtype), indices
