# ruff: noqa: F821 (names of the reference)
"""All shards are gathered everywhere, and the norm taken of the whole."""

TASK = "a9.clip_grad_norm"
EXPECT = {
    "status": "failed",
    "check": "sends a number",
    "cause": "the gradients themselves are sent",
}


def clip_grad_norm(sharded, replicated, max_norm, group=None):
    own, shared = list(sharded), list(replicated)
    flat = torch.cat([each.grad.flatten() for each in own])
    parts = [torch.empty_like(flat) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, flat, group=group)
    norm = (sum(part.double().square().sum() for part in parts) + _squares(shared)).sqrt()
    for parameter in (*own, *shared):
        parameter.grad.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm
