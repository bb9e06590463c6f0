# ruff: noqa: F821 (names of the reference)
"""An all-reduce for every gradient."""

TASK = "a9.clip_grad_norm"
EXPECT = {
    "status": "failed",
    "check": "sends a number",
    "cause": "one all-reduce for each gradient",
}


def clip_grad_norm(sharded, replicated, max_norm, group=None):
    own, shared = list(sharded), list(replicated)
    squares = torch.zeros((), dtype=torch.float64) + _squares(shared)
    for parameter in own:
        for value in parameter.grad.flatten().double().square().split(32):
            one = value.sum()
            dist.all_reduce(one, group=group)
            squares += one
    norm = squares.sqrt()
    for parameter in (*own, *shared):
        parameter.grad.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm
