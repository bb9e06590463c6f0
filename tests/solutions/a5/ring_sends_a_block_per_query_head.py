"""Expands the key-value heads before they travel."""

from .context_parallel import ring_attention as solved

TASK = "a5.ring_attention"
EXPECT = {
    "status": "failed",
    "check": "sends keys and values once around",
    "cause": "are repeated for every query head",
}


def ring_attention(q, k, v, causal=False, layout="zigzag", group=None):
    if layout not in ("zigzag", "contiguous"):
        raise ValueError(f"layout={layout}")
    groups = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(groups, 1) for t in (k, v))
    return solved(q, k, v, causal, layout, group)
