"""Exponentials of the log-sum-exps as they are."""

TASK = "a5.merge_attention"
EXPECT = {
    "status": "failed",
    "check": "does not overflow",
    "cause": "exp overflows",
}


def merge_attention(out_a, lse_a, out_b, lse_b):
    weight_a, weight_b = lse_a.exp().unsqueeze(-1), lse_b.exp().unsqueeze(-1)
    out = (weight_a * out_a + weight_b * out_b) / (weight_a + weight_b)
    return out.to(out_a.dtype), (lse_a.exp() + lse_b.exp()).log()
