"""The router sees the tokens as constants: its part of the input's gradient is lost."""

from torch import nn

from .layer import ExpertParallelMoE as _Solved

TASK = "a8.ExpertParallelMoE"
EXPECT = {
    "status": "failed",
    "check": "gives router and input their gradients",
    "cause": "the router gets detached tokens",
}


class _Constant(nn.Module):
    def __init__(self, router):
        super().__init__()
        self.router = router

    def forward(self, tokens):
        return self.router(tokens.detach())


class ExpertParallelMoE(_Solved):
    def __init__(self, experts, router, group=None):
        super().__init__(experts, _Constant(router), group)
