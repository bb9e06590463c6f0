"""Sequence parallelism: what tensor parallelism leaves replicated is cut along the sequence.

Megatron-LM's second step [Korthikanti et al. 2022, section 4.2.2]. An all-reduce is a
reduce-scatter and an all-gather. Tensor parallelism does both at one place; here the norm, the
dropout and the residual stand between the two, each rank on its share of the sequence, and the
bytes stay what they were:

    tensor parallel     … g = all-reduce ─► dropout, +, norm on all tokens, on all ranks ─► f …
    sequence parallel   … ḡ' = reduce-scatter ─► dropout, +, norm on s / n tokens ─► g' = all-gather

                           forward           backward
    gather_from (g')       all-gather        reduce-scatter
    reduce_scatter_to (ḡ') reduce-scatter    all-gather
    scatter_to             slice             all-gather

The sequence is dimension 0 of every activation; rank i of n has tokens i·s/n … (i+1)·s/n − 1.
``group=None`` is the default group; in a group of one rank nothing is sent.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from ..a4_tensor_parallel.dense import Block, attend, dropout, split_heads
from .given import Shard, own_share, share_of, whole_parameter
from .norm import layer_norm


def gather_from_sequence_parallel(
    tensor: torch.Tensor, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """Put the ranks' shares of the sequence together, in front of layers that are cut.

    Args:
        tensor: ``(sequence / n, …)``, floating point, the same shape and dtype on all ranks.
        group: n ranks that share the sequence.

    Returns:
        ``(sequence, …)``, the same on all ranks, by one all-gather. Backward: one reduce-scatter,
        the sum of all ranks' gradients, since each rank's shard of the layer saw all tokens.
    """
    raise NotImplementedError("a5.gather_from_sequence_parallel")


def reduce_scatter_to_sequence_parallel(
    tensor: torch.Tensor, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """Add up the ranks' partial results, each rank keeping its share of the sequence.

    Args:
        tensor: ``(sequence, …)``, floating point, the same shape and dtype on all ranks; unchanged.
        group: n ranks that share the sequence.

    Returns:
        ``(sequence / n, …)``: this rank's tokens of the sum, by one reduce-scatter. Backward: one
        all-gather.

    Raises:
        ValueError: n does not divide the sequence; the message names both numbers.
    """
    raise NotImplementedError("a5.reduce_scatter_to_sequence_parallel")


def scatter_to_sequence_parallel(
    tensor: torch.Tensor, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """Keep this rank's share of a replicated sequence, as after the embedding.

    Args:
        tensor: ``(sequence, …)``, floating point, the same on all ranks.
        group: n ranks that share the sequence.

    Returns:
        ``(sequence / n, …)`` in memory of its own; nothing is sent. Backward: one all-gather.

    Raises:
        ValueError: n does not divide the sequence; the message names both numbers.
    """
    raise NotImplementedError("a5.scatter_to_sequence_parallel")


class SequenceParallelLayerNorm(nn.Module):
    """Layer norm of this rank's tokens. Its parameters are whole on every rank.

    Attributes: ``weight`` and ``bias`` (hidden,), or ``None`` where the dense norm has none.
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None

    @classmethod
    def from_dense(
        cls, norm: nn.LayerNorm, group: dist.ProcessGroup | None = None
    ) -> SequenceParallelLayerNorm:
        """A norm over the last dimension, whose parameters are copied from ``norm``.

        ``norm`` is the same on all ranks, normalizes one dimension, and is not changed.
        """
        raise NotImplementedError("a5.SequenceParallelLayerNorm")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(sequence / n, …, hidden)``, this rank's tokens, to the same shape.

        Nothing is sent forward. Backward: the gradients of ``weight`` and ``bias`` are summed over
        the group (each rank saw its own tokens only), in one all-reduce.
        """
        raise NotImplementedError("a5.SequenceParallelLayerNorm")


class SequenceParallelBlock(nn.Module):
    """``Block`` with tensor parallelism inside its halves and sequence parallelism between them.

    Parameters have the dense block's names. ``attention.query``, ``.key``, ``.value`` and
    ``mlp.up`` are cut by columns (weight and bias along dimension 0), ``attention.output`` and
    ``mlp.down`` by rows (weight along dimension 1, bias whole); norms are whole.
    """

    @classmethod
    def from_dense(
        cls, block: Block, group: dist.ProcessGroup | None = None
    ) -> SequenceParallelBlock:
        """This rank's shards of a dense block that is the same on all ranks; it is not changed.

        Raises:
            ValueError: n does not divide heads, kv_heads or intermediate; the message names both
                numbers.
        """
        raise NotImplementedError("a5.SequenceParallelBlock")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(sequence / n, batch, hidden)``, this rank's tokens, to the same shape.

        Forward sends what the two all-reduces of tensor parallelism send, as two all-gathers and
        two reduce-scatters; backward the same, one more all-gather per half for the input that was
        not kept, and the gradients of the norms. No tensor of the whole sequence and all of
        ``hidden`` is kept for backward.

        Dropout (in training), in the order of the dense block: on the attention probabilities of
        this rank's heads, on the outputs of both halves of this rank's tokens. Ranks draw different
        masks, also when they were all seeded alike, and leave the default random generator as alike
        as they found it. Masks are drawn by the given ``dropout`` or by ``F.dropout``.
        """
        raise NotImplementedError("a5.SequenceParallelBlock")
