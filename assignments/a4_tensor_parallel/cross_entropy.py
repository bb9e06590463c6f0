"""Cross-entropy on logits whose vocabulary is cut over the ranks, without gathering them.

The logits are the largest tensor of a language model: tokens × vocabulary. The loss of a token
needs four numbers of it: the largest logit m, Σ exp(xⱼ − m), the target's logit and, for label
smoothing, Σ xⱼ. Each is a maximum or a sum over the vocabulary, so ranks reduce them locally first
and exchange four numbers per token instead of V / n [Shoeybi et al. 2019, section 3].
"""

from __future__ import annotations

import torch
import torch.distributed as dist


def vocab_parallel_cross_entropy(
    logits: torch.Tensor,
    target: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """Loss per token, as ``F.cross_entropy(…, reduction="none")`` on the gathered logits.

    Forward: at most two all-reduces, and at most four numbers per token in them. Backward:
    nothing is sent; each rank gets the gradient of its own logits.

    Args:
        logits: ``(…, V / n)``: on group rank i of n columns i·V/n … of all logits; floating
            point; unchanged. Magnitudes of 10⁴ do not overflow.
        target: ``(…)``, int64, numbers in the whole vocabulary, the same on all ranks.
        group: the ranks that share the vocabulary.
        ignore_index: tokens with this target have loss 0 and gradient 0.
        label_smoothing: ε: the target distribution is (1 − ε) at the target plus ε / V at each of
            the V entries of the *whole* vocabulary.

    Returns:
        ``(…)``, dtype of ``logits`` (16-bit logits are worked on in float32), the same on all
        ranks.

    Raises:
        ValueError: ``target``'s shape is not that of ``logits`` without its last dimension; a
            target that is neither ``ignore_index`` nor in 0 … V − 1; ``label_smoothing`` outside
            [0, 1]. The message names the argument and both values.
    """
    raise NotImplementedError("a4.vocab_parallel_cross_entropy")
