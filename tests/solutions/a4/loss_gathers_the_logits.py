"""Gathers all logits and calls F.cross_entropy."""

from torch.nn import functional as F

from .mappings import gather_from_tensor_parallel

TASK = "a4.vocab_parallel_cross_entropy"
EXPECT = {
    "status": "failed",
    "check": "sends at most two all-reduces",
    "cause": "all logits are gathered",
}


def vocab_parallel_cross_entropy(
    logits, target, group=None, ignore_index=-100, label_smoothing=0.0
):
    whole = gather_from_tensor_parallel(logits, group)
    return F.cross_entropy(
        whole.flatten(0, -2), target.flatten(), reduction="none", ignore_index=ignore_index,
        label_smoothing=label_smoothing,
    ).view(target.shape)  # fmt: skip
