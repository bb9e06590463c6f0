"""A product with one-hot rows, where an index of another rank is a row of zeros."""

import torch
import torch.distributed as dist

from .layers import VocabParallelEmbedding as Solved
from .mappings import reduce_from_tensor_parallel

TASK = "a4.VocabParallelEmbedding"
EXPECT = "passed"


class VocabParallelEmbedding(Solved):
    def forward(self, indices):
        share = self.weight.shape[0]
        if bool(((indices < 0) | (indices >= self.vocabulary)).any()):
            raise ValueError(f"indices {indices.tolist()}: expected 0 to {self.vocabulary - 1}")
        first = dist.get_rank(self.group) * share
        own = torch.arange(first, first + share)
        chosen = (indices.unsqueeze(-1) == own).to(self.weight.dtype)
        return reduce_from_tensor_parallel(chosen @ self.weight, self.group)
