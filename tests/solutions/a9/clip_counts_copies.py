# ruff: noqa: F821 (names of the reference)
"""Replicated gradients go into the all-reduce, too."""

TASK = "a9.clip_grad_norm"
EXPECT = {
    "status": "failed",
    "check": "takes the norm over all shards",
    "cause": "counted once for each rank",
}


def clip_grad_norm(sharded, replicated, max_norm, group=None):
    if not max_norm > 0:
        raise ValueError(f"max_norm={max_norm}")
    everything = [*sharded, *replicated]
    squares = torch.zeros((), dtype=torch.float64) + _squares(everything)
    dist.all_reduce(squares, group=group)
    norm = squares.sqrt()
    for parameter in everything:
        if parameter.grad is not None:
            parameter.grad.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm
