"""The gradients of a token's rows are averaged."""

from .dispatch import dispatch as Solved

TASK = "a8.dispatch"
EXPECT = {
    "status": "failed",
    "check": "gives the tokens their gradient",
    "cause": "averaged, not added up",
}


def dispatch(tokens, indices, num_experts, group=None):
    uses = (indices >= 0).sum(1, keepdim=True).clamp(min=1)
    share = tokens / uses
    return Solved(share + (tokens - share).detach(), indices, num_experts, group)
