"""Experts get the tokens as constants: of the input's gradient only the router's part is left."""

from .dispatch import dispatch as _dispatch

TASK = "a8.ExpertParallelMoE"
EXPECT = {
    "status": "failed",
    "check": "gives router and input their gradients",
    "cause": "through the experts is missing: they get detached tokens",
}


def dispatch(tokens, indices, num_experts, group=None):
    return _dispatch(tokens.detach(), indices, num_experts, group)
