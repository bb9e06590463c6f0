"""Cross-entropy on logits whose vocabulary is cut over the ranks, without gathering them.

The logits are the largest tensor of a language model: tokens × vocabulary. The loss of a token
needs four numbers of it: the largest logit m, Σ exp(xⱼ − m), the target's logit and, for label
smoothing, Σ xⱼ. Each is a maximum or a sum over the vocabulary, so ranks reduce them locally first
and exchange four numbers per token instead of V / n [Shoeybi et al. 2019, section 3].
"""

from __future__ import annotations

# BEGIN SOLUTION
from typing import Any

# END SOLUTION
import torch
import torch.distributed as dist

# BEGIN SOLUTION
import kernels


def _check(
    logits: torch.Tensor, target: torch.Tensor, ignore_index: int, smoothing: float, vocabulary: int
) -> None:
    if logits.shape[:-1] != target.shape:
        raise ValueError(
            f"target has shape {tuple(target.shape)}: expected {tuple(logits.shape[:-1])}, that of "
            f"logits {tuple(logits.shape)} without the vocabulary"
        )
    if not 0 <= smoothing <= 1:
        raise ValueError(f"label_smoothing={smoothing}: expected 0 to 1")
    wrong = target[(target != ignore_index) & ((target < 0) | (target >= vocabulary))]
    if wrong.numel():
        raise ValueError(
            f"target holds {int(wrong[0])}: expected 0 to {vocabulary - 1}, or "
            f"ignore_index={ignore_index}"
        )


class _VocabParallelCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits: torch.Tensor,
        target: torch.Tensor,
        group: dist.ProcessGroup | None,
        ignore_index: int,
        smoothing: float,
    ) -> torch.Tensor:
        share = logits.shape[-1]
        vocabulary = share * dist.get_world_size(group)
        _check(logits, target, ignore_index, smoothing, vocabulary)
        # The kernels do not sum the logits themselves, as label smoothing needs.
        ctx.fused = None if smoothing else kernels.usable(__file__, logits)
        if ctx.fused is not None:
            return _forward_by_kernel(ctx, logits, target, group, ignore_index)
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))

        most = wide.amax(-1)
        _all_reduce(most, dist.ReduceOp.MAX, group)
        shifted = wide - most.unsqueeze(-1)

        local = target - dist.get_rank(group) * share
        here = (local >= 0) & (local < share)
        local = local.masked_fill(~here, 0).unsqueeze(-1)
        at_target = shifted.gather(-1, local).squeeze(-1).masked_fill(~here, 0.0)
        # Three sums in one message. All are of shifted logits, which cancel in the loss.
        exponentials = shifted.exp()
        sums = torch.stack([exponentials.sum(-1), at_target, shifted.sum(-1)])
        _all_reduce(sums, dist.ReduceOp.SUM, group)
        total, at_target, sum_shifted = sums

        lse = total.log()
        loss = lse - (1 - smoothing) * at_target - smoothing * sum_shifted / vocabulary
        counted = target != ignore_index
        loss = loss.masked_fill(~counted, 0.0)

        probabilities = exponentials.div_(total.unsqueeze(-1))
        ctx.save_for_backward(probabilities, local, here, counted)
        ctx.smoothing, ctx.vocabulary, ctx.dtype = smoothing, vocabulary, logits.dtype
        return loss.to(logits.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        if ctx.fused is not None:
            return _backward_by_kernel(ctx, gradient), None, None, None, None
        probabilities, local, here, counted = ctx.saved_tensors
        # p − (1 − ε) [j is the target] − ε / V: every shard has a gradient, the target's or not.
        slope = probabilities - ctx.smoothing / ctx.vocabulary
        at_target = here.unsqueeze(-1).to(slope.dtype) * (ctx.smoothing - 1)
        slope.scatter_add_(-1, local, at_target)
        scale = gradient.to(slope.dtype).masked_fill(~counted, 0.0)
        return (slope * scale.unsqueeze(-1)).to(ctx.dtype), None, None, None, None


def _forward_by_kernel(
    ctx: Any,
    logits: torch.Tensor,
    target: torch.Tensor,
    group: dist.ProcessGroup | None,
    ignore_index: int,
) -> torch.Tensor:
    """The losses, out of one pass over the logits; backward needs no probabilities, only those."""
    rows, targets = logits.view(-1, logits.shape[-1]), target.reshape(-1).contiguous()
    ctx.start, ctx.ignore_index = dist.get_rank(group) * logits.shape[-1], ignore_index
    largest, total, at_target = ctx.fused.vocab_cross_entropy_forward(rows, targets, ctx.start)
    most = largest.clone()
    _all_reduce(most, dist.ReduceOp.MAX, group)
    sums = torch.stack([total * (largest - most).exp(), at_target])
    _all_reduce(sums, dist.ReduceOp.SUM, group)
    log_total = sums[0].log()
    loss = log_total - (sums[1] - most)
    loss = loss.masked_fill(targets == ignore_index, 0.0)
    ctx.save_for_backward(logits, targets, most + log_total)
    return loss.view(target.shape).to(logits.dtype)


def _backward_by_kernel(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
    logits, targets, lse = ctx.saved_tensors
    found: torch.Tensor = ctx.fused.vocab_cross_entropy_backward(
        logits.view(-1, logits.shape[-1]), targets, lse,
        gradient.reshape(-1).float().contiguous(), ctx.start, ctx.ignore_index,
    )  # fmt: skip
    return found.view(logits.shape)


def _all_reduce(tensor: torch.Tensor, op: Any, group: dist.ProcessGroup | None) -> None:
    if dist.get_world_size(group) > 1:
        dist.all_reduce(tensor, op, group=group)


# END SOLUTION


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
    # BEGIN SOLUTION
    return _VocabParallelCrossEntropy.apply(logits, target, group, ignore_index, label_smoothing)
    # END SOLUTION
