"""Gradients of keys and values are those of this rank's own queries."""

import torch
import torch.distributed as dist

from .context_parallel import ring_attention as solved

TASK = "a5.ring_attention"
EXPECT = {
    "status": "failed",
    "check": "attends to the whole sequence",
    "cause": "only this rank's queries count in the gradient of its",
}


class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, causal, layout, group):
        ctx.extra = causal, layout, group
        with torch.no_grad():
            out = solved(q, k, v, causal, layout, group)
        ctx.save_for_backward(q, k, v)
        return out

    @staticmethod
    def backward(ctx, gradient):
        rank = dist.get_rank(ctx.extra[2])
        grad_q, grad_kv = None, None
        for owner in range(dist.get_world_size(ctx.extra[2])):
            # The others' queries ask for no gradient: what comes home is this rank's part.
            leaves = [t.detach().clone().requires_grad_() for t in ctx.saved_tensors]
            with torch.enable_grad():
                out = solved(*leaves, *ctx.extra)
            mine = gradient if owner == rank else torch.zeros_like(gradient)
            found = torch.autograd.grad(out, leaves, mine)
            if owner == rank:
                grad_q, *grad_kv = found
        return grad_q, *grad_kv, None, None, None


def ring_attention(q, k, v, causal=False, layout="zigzag", group=None):
    return Own.apply(q, k, v, causal, layout, group)
