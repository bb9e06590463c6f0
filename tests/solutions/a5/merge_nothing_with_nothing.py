"""NaN where neither side attended to anything."""

import torch

TASK = "a5.merge_attention"
EXPECT = {
    "status": "failed",
    "check": "copes with sides",
    "cause": "−inf − (−inf) is not a number",
}


def merge_attention(out_a, lse_a, out_b, lse_b):
    lse = torch.logaddexp(lse_a, lse_b)
    weight_a, weight_b = (lse_a - lse).exp().unsqueeze(-1), (lse_b - lse).exp().unsqueeze(-1)
    return (weight_a * out_a + weight_b * out_b).to(out_a.dtype), lse
