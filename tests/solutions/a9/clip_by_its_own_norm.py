# ruff: noqa: F821 (names of the reference)
"""Every rank clips what it has, as if it were alone."""

TASK = "a9.clip_grad_norm"
EXPECT = {
    "status": "failed",
    "check": "takes the norm over all shards",
    "cause": "each rank clips by the norm of its own shards",
}


def clip_grad_norm(sharded, replicated, max_norm, group=None):
    return torch.nn.utils.clip_grad_norm_([*sharded, *replicated], max_norm)
