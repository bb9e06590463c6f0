"""The weights are a sigmoid of the difference, the new lse a softplus."""

import torch

TASK = "a5.merge_attention"
EXPECT = "passed"


def merge_attention(out_a, lse_a, out_b, lse_b):
    nobody = (lse_a == float("-inf")) & (lse_b == float("-inf"))
    difference = (lse_b - lse_a).masked_fill(nobody, 0.0)
    share = torch.sigmoid(difference).unsqueeze(-1)
    out = (1 - share) * out_a + share * out_b
    return out.to(out_a.dtype), torch.logaddexp(lse_a, lse_b)
