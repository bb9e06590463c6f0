"""Treats the losses of the ranks as parts of one sum."""

from .cross_entropy import vocab_parallel_cross_entropy as solved
from .mappings import copy_to_tensor_parallel

TASK = "a4.vocab_parallel_cross_entropy"
EXPECT = {
    "status": "failed",
    "check": "gives each rank the gradient",
    "cause": "the gradient is summed over ranks that all have the same loss",
}


def vocab_parallel_cross_entropy(
    logits, target, group=None, ignore_index=-100, label_smoothing=0.0
):
    loss = solved(logits, target, group, ignore_index, label_smoothing)
    return copy_to_tensor_parallel(loss, group)
