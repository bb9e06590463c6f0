"""Trains copies: the optimizer holds the originals."""

import copy

from .layer import ExpertParallelMoE as Solved

TASK = "a8.ExpertParallelMoE"
EXPECT = {
    "status": "failed",
    "check": "gives experts their gradient",
    "cause": "a copy of the expert was called",
}


class ExpertParallelMoE(Solved):
    def __init__(self, experts, router, group=None):
        super().__init__(copy.deepcopy(experts), router, group)
