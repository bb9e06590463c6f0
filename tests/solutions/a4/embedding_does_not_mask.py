"""Clamps other ranks' indices, and adds the rows it finds there."""

import torch.distributed as dist
from torch.nn import functional as F

from .layers import VocabParallelEmbedding as Solved
from .mappings import reduce_from_tensor_parallel

TASK = "a4.VocabParallelEmbedding"
EXPECT = {
    "status": "failed",
    "check": "equals the dense embedding",
    "cause": "rows of other ranks' indices are not set to zero",
}


class VocabParallelEmbedding(Solved):
    def forward(self, indices):
        share = self.weight.shape[0]
        local = (indices - dist.get_rank(self.group) * share).clamp(0, share - 1)
        return reduce_from_tensor_parallel(F.embedding(local, self.weight), self.group)
