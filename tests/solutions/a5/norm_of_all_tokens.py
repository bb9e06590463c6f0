"""Gathers the sequence, and norms all of it on every rank."""

import torch.distributed as dist

from .sequence import SequenceParallelLayerNorm as Solved
from .sequence import gather_from_sequence_parallel

TASK = "a5.SequenceParallelLayerNorm"
EXPECT = {
    "status": "failed",
    "check": "sends nothing but",
    "cause": "the norm of a token needs that token only",
}


class SequenceParallelLayerNorm(Solved):
    def forward(self, x):
        whole = gather_from_sequence_parallel(x, self.group)
        return (
            super().forward(whole).chunk(dist.get_world_size(self.group))[dist.get_rank(self.group)]
        )
