"""Takes zigzag shares for contiguous ones."""

from .context_parallel import ring_attention as solved

TASK = "a5.ring_attention"
EXPECT = {
    "status": "failed",
    "check": "is causal on zigzag shares",
    "cause": "a zigzag share has tokens of both ends",
}


def ring_attention(q, k, v, causal=False, layout="zigzag", group=None):
    return solved(q, k, v, causal, "contiguous", group)
