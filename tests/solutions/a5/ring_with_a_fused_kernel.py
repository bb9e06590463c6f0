"""PyTorch's fused CPU attention for every block, which gives its log-sum-exp."""

import torch

TASK = "a5.ring_attention"
EXPECT = "passed"


def block_attention(query, key, value, causal):
    groups = query.shape[1] // key.shape[1]
    key, value = (t.repeat_interleave(groups, 1).contiguous() for t in (key, value))
    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return fused(query.contiguous(), key, value, 0.0, causal)[:2]
