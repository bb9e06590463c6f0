"""The whole table on every rank."""

from torch import nn
from torch.nn import functional as F

TASK = "a4.VocabParallelEmbedding"
EXPECT = {
    "status": "failed",
    "check": "keeps its own rows only",
    "cause": "this parameter was not cut",
}


class VocabParallelEmbedding(nn.Module):
    @classmethod
    def from_embedding(cls, embedding, group=None):
        layer = cls()
        layer.weight = nn.Parameter(embedding.weight.detach().clone())
        return layer

    def forward(self, indices):
        return F.embedding(indices, self.weight)
