"""Each side gets the other's weight."""

import torch

TASK = "a5.merge_attention"
EXPECT = {
    "status": "failed",
    "check": "merges by log-sum-exp",
    "cause": "each side has the other's weight",
}


def merge_attention(out_a, lse_a, out_b, lse_b):
    share = torch.sigmoid(lse_b - lse_a).unsqueeze(-1)
    return share * out_a + (1 - share) * out_b, torch.logaddexp(lse_a, lse_b)
