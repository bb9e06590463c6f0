"""Scores are products, not products over √head_dim."""

from .context_parallel import ring_attention as solved

TASK = "a5.ring_attention"
EXPECT = {
    "status": "failed",
    "check": "attends to the whole sequence",
    "cause": "scores are not divided by √head_dim",
}


def ring_attention(q, k, v, causal=False, layout="zigzag", group=None):
    return solved(q * q.shape[-1] ** 0.5, k, v, causal, layout, group)
