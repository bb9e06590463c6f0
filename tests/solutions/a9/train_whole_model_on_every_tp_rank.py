"""Nothing is cut over tp: right values, the memory of one device."""

from dataclasses import replace

from torch.nn import functional as F

from .train import _Stage, _Training

TASK = "a9.train"
EXPECT = {
    "status": "failed",
    "check": "keeps its own share of the model only",
    "cause": "every tp rank holds the whole model",
}


class _WholeStage(_Stage):
    def __init__(self, config, mesh, parts, first, end):
        super().__init__(replace(config, tp=1, sp=False), mesh, parts, first, end)


class _WholeLoss(_Training):
    def _loss(self, logits, target):
        return F.cross_entropy(logits.flatten(0, -2), target.flatten())


_Stage, _Training = _WholeStage, _WholeLoss
