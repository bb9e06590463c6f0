"""Linear layers and the embedding with their weights cut over the ranks of a group.

Megatron-LM's two cuts of Y = X Wᵀ [Shoeybi et al. 2019, section 3]. PyTorch keeps W as (out, in),
so "columns" of the paper's A = Wᵀ are rows here:

    ColumnParallelLinear   W cut along out: X whole      -> Y in shares     (f before it)
    RowParallelLinear      W cut along in:  X in shares  -> Y by a sum      (g after it)

Parameters are shards with storage of their own (a view would keep the whole weight alive), in
group order, contiguous along the cut dimension. ``state_dict`` has the dense module's names.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn


class ColumnParallelLinear(nn.Module):
    """A linear layer whose outputs are cut: rank i of n computes out / n of them.

    Attributes: ``weight`` (out / n, in), ``bias`` (out / n,) or ``None``.
    """

    weight: nn.Parameter
    bias: nn.Parameter | None

    @classmethod
    def from_linear(
        cls,
        linear: nn.Linear,
        group: dist.ProcessGroup | None = None,
        gather_output: bool = False,
    ) -> ColumnParallelLinear:
        """This rank's shard of a dense layer that is the same on all ranks.

        Args:
            linear: its weight (out, in) and bias (out,) are copied from, and not changed.
            group: n ranks that share the layer.
            gather_output: whether ``forward`` returns all outputs, on every rank.

        Raises:
            ValueError: n does not divide out; the message names both numbers.
        """
        raise NotImplementedError("a4.ColumnParallelLinear")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(…, in)``, the same on all ranks, to ``(…, out / n)``; ``(…, out)`` when gathered.

        Nothing is sent forward (one all-gather when gathered). Backward: one all-reduce of the
        gradient of ``x``, none when ``x`` needs no gradient.
        """
        raise NotImplementedError("a4.ColumnParallelLinear")


class RowParallelLinear(nn.Module):
    """A linear layer whose inputs are cut: each rank multiplies its share, their sum is the output.

    Attributes: ``weight`` (out, in / n), ``bias`` (out,) or ``None``: whole on every rank, and
    added once, after the sum.
    """

    weight: nn.Parameter
    bias: nn.Parameter | None

    @classmethod
    def from_linear(
        cls,
        linear: nn.Linear,
        group: dist.ProcessGroup | None = None,
        input_is_parallel: bool = True,
    ) -> RowParallelLinear:
        """This rank's shard of a dense layer that is the same on all ranks.

        Args:
            linear: its weight (out, in) and bias (out,) are copied from, and not changed.
            group: n ranks that share the layer.
            input_is_parallel: whether ``forward`` gets this rank's share of the inputs; if not, it
                gets all of them and takes its share itself.

        Raises:
            ValueError: n does not divide in; the message names both numbers.
        """
        raise NotImplementedError("a4.RowParallelLinear")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(…, in / n)``, or ``(…, in)`` unless ``input_is_parallel``, to ``(…, out)``.

        One all-reduce forward, of the output; the output is the same on all ranks. Nothing is sent
        backward (one all-gather when the input was whole).
        """
        raise NotImplementedError("a4.RowParallelLinear")


class VocabParallelEmbedding(nn.Module):
    """An embedding whose table is cut along the vocabulary: V / n rows each, in group order.

    Attribute: ``weight`` (V / n, hidden).
    """

    weight: nn.Parameter

    @classmethod
    def from_embedding(
        cls, embedding: nn.Embedding, group: dist.ProcessGroup | None = None
    ) -> VocabParallelEmbedding:
        """This rank's shard of a dense embedding that is the same on all ranks.

        Args:
            embedding: its weight (V, hidden) is copied from, and not changed. ``padding_idx``,
                ``max_norm``, ``sparse`` and ``scale_grad_by_freq`` are not asked for.
            group: n ranks that share the table.

        Raises:
            ValueError: n does not divide V; the message names both numbers.
        """
        raise NotImplementedError("a4.VocabParallelEmbedding")

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        """Indices ``(…)`` into the whole vocabulary, int64, to ``(…, hidden)``.

        Args:
            indices: the same on all ranks; unchanged.

        Returns:
            The rows, the same on all ranks, by one all-reduce. Nothing is sent backward.

        Raises:
            ValueError: an index is not in 0 … V − 1 (rows of zeros would hide it).
        """
        raise NotImplementedError("a4.VocabParallelEmbedding")
