"""Counts the caller's indices from its own first row, in place."""

import torch.distributed as dist
from torch.nn import functional as F

from .layers import VocabParallelEmbedding as Solved
from .mappings import reduce_from_tensor_parallel

TASK = "a4.VocabParallelEmbedding"
EXPECT = {
    "status": "failed",
    "check": "equals the dense embedding",
    "cause": "an operation in place works on",
}


class VocabParallelEmbedding(Solved):
    def forward(self, indices):
        share = self.weight.shape[0]
        indices -= dist.get_rank(self.group) * share
        elsewhere = (indices < 0) | (indices >= share)
        indices[elsewhere] = 0
        rows = F.embedding(indices, self.weight) * ~elsewhere.unsqueeze(-1)
        return reduce_from_tensor_parallel(rows, self.group)
