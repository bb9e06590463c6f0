# ruff: noqa: F821 (names of the reference)
"""The norm that is returned is right, the one that is divided by is not."""

TASK = "a9.clip_grad_norm"
EXPECT = {
    "status": "failed",
    "check": "takes the norm over all shards",
    "cause": "each rank scales by the norm of its own gradients",
}


def clip_grad_norm(sharded, replicated, max_norm, group=None):
    own, shared = list(sharded), list(replicated)
    squares = torch.zeros((), dtype=torch.float64) + _squares(own)
    dist.all_reduce(squares, group=group)
    norm = (squares + _squares(shared)).sqrt()
    torch.nn.utils.clip_grad_norm_([*own, *shared], max_norm)
    return norm
