# ruff: noqa: F821 (names of the reference)
"""Gathers one number of each rank and adds them up itself; divides by the norm as it is."""

TASK = "a9.clip_grad_norm"
EXPECT = "passed"


def clip_grad_norm(sharded, replicated, max_norm, group=None):
    if not max_norm > 0:
        raise ValueError(f"max_norm must be above 0, not {max_norm}")
    own, shared = list(sharded), list(replicated)
    sums = []
    for parameters in (own, shared):
        flat = [each.grad.flatten().float() for each in parameters if each.grad is not None]
        sums.append(torch.cat(flat).dot(torch.cat(flat)) if flat else torch.zeros(()))
    parts = [torch.zeros(()) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, sums[0], group=group)
    norm = float(sum(float(part) for part in parts) + float(sums[1])) ** 0.5
    if norm > max_norm:
        for parameter in own + shared:
            if parameter.grad is not None:
                parameter.grad *= max_norm / norm
    return norm
