"""An index of nobody's comes out as a row of zeros."""

import torch.distributed as dist
from torch.nn import functional as F

from .layers import VocabParallelEmbedding as Solved
from .mappings import reduce_from_tensor_parallel

TASK = "a4.VocabParallelEmbedding"
EXPECT = {
    "status": "failed",
    "check": "and wrong indices",
    "cause": "the range of the indices is not checked",
}


class VocabParallelEmbedding(Solved):
    def forward(self, indices):
        share = self.weight.shape[0]
        local = indices - dist.get_rank(self.group) * share
        elsewhere = (local < 0) | (local >= share)
        rows = F.embedding(local.masked_fill(elsewhere, 0), self.weight)
        rows = rows.masked_fill(elsewhere.unsqueeze(-1), 0.0)
        return reduce_from_tensor_parallel(rows, self.group)
