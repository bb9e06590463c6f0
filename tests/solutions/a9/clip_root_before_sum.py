# ruff: noqa: F821 (names of the reference)
"""Norms of the ranks are added up, not their squares."""

TASK = "a9.clip_grad_norm"
EXPECT = {
    "status": "failed",
    "check": "takes the norm over all shards",
    "cause": "the root is taken before the sum",
}


def clip_grad_norm(sharded, replicated, max_norm, group=None):
    own, shared = list(sharded), list(replicated)
    norm = torch.as_tensor(_squares(own), dtype=torch.float64).sqrt()
    dist.all_reduce(norm, group=group)
    norm += torch.as_tensor(_squares(shared), dtype=torch.float64).sqrt()
    for parameter in (*own, *shared):
        if parameter.grad is not None:
            parameter.grad.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm
