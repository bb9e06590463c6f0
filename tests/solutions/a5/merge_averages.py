"""The mean of the two outputs."""

import torch

TASK = "a5.merge_attention"
EXPECT = {
    "status": "failed",
    "check": "merges by log-sum-exp",
    "cause": "averaged, not weighted",
}


def merge_attention(out_a, lse_a, out_b, lse_b):
    return (out_a + out_b) / 2, torch.logaddexp(lse_a, lse_b)
