"""Attends to its own tokens, and never looks round."""

from torch.nn import functional as F

TASK = "a5.ring_attention"
EXPECT = {
    "status": "failed",
    "check": "attends to the whole sequence",
    "cause": "the rank's own block only",
}


def ring_attention(q, k, v, causal=False, layout="zigzag", group=None):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
