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

# BEGIN SOLUTION
from torch.nn import functional as F

from .mappings import (
    copy_to_tensor_parallel,
    gather_from_tensor_parallel,
    own_slice,
    reduce_from_tensor_parallel,
    scatter_to_tensor_parallel,
    share_of,
)


def shard_parameter(
    parameter: torch.Tensor, dim: int, what: str, group: dist.ProcessGroup | None
) -> nn.Parameter:
    """This rank's share of a parameter. what: its name, for the error when n does not divide it."""
    share_of(parameter.shape[dim], what, group)
    return nn.Parameter(
        own_slice(parameter.detach(), dim, group), requires_grad=parameter.requires_grad
    )


def whole_parameter(parameter: torch.Tensor) -> nn.Parameter:
    """A copy of a parameter that every rank keeps whole."""
    return nn.Parameter(parameter.detach().clone(), requires_grad=parameter.requires_grad)


# END SOLUTION


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
        # BEGIN SOLUTION
        layer = cls()
        layer.group = group
        layer.gather_output = gather_output
        layer.weight = shard_parameter(linear.weight, 0, "out_features", group)
        bias = linear.bias
        layer.bias = None if bias is None else shard_parameter(bias, 0, "out_features", group)
        return layer
        # END SOLUTION

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(…, in)``, the same on all ranks, to ``(…, out / n)``; ``(…, out)`` when gathered.

        Nothing is sent forward (one all-gather when gathered). Backward: one all-reduce of the
        gradient of ``x``, none when ``x`` needs no gradient.
        """
        # BEGIN SOLUTION
        y = F.linear(copy_to_tensor_parallel(x, self.group), self.weight, self.bias)
        return gather_from_tensor_parallel(y, self.group) if self.gather_output else y
        # END SOLUTION


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
        # BEGIN SOLUTION
        layer = cls()
        layer.group = group
        layer.input_is_parallel = input_is_parallel
        layer.weight = shard_parameter(linear.weight, 1, "in_features", group)
        layer.bias = None if linear.bias is None else whole_parameter(linear.bias)
        return layer
        # END SOLUTION

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(…, in / n)``, or ``(…, in)`` unless ``input_is_parallel``, to ``(…, out)``.

        One all-reduce forward, of the output; the output is the same on all ranks. Nothing is sent
        backward (one all-gather when the input was whole).
        """
        # BEGIN SOLUTION
        if not self.input_is_parallel:
            x = scatter_to_tensor_parallel(x, self.group)
        y = reduce_from_tensor_parallel(F.linear(x, self.weight), self.group)
        return y if self.bias is None else y + self.bias
        # END SOLUTION


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
        # BEGIN SOLUTION
        layer = cls()
        layer.group = group
        layer.vocabulary = embedding.num_embeddings
        layer.weight = shard_parameter(embedding.weight, 0, "num_embeddings", group)
        return layer
        # END SOLUTION

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        """Indices ``(…)`` into the whole vocabulary, int64, to ``(…, hidden)``.

        Args:
            indices: the same on all ranks; unchanged.

        Returns:
            The rows, the same on all ranks, by one all-reduce. Nothing is sent backward.

        Raises:
            ValueError: an index is not in 0 … V − 1 (rows of zeros would hide it).
        """
        # BEGIN SOLUTION
        if indices.numel() and not indices.is_meta:
            least, most = (int(extreme) for extreme in indices.aminmax())
            if least < 0 or most >= self.vocabulary:
                wrong = least if least < 0 else most
                raise ValueError(f"indices holds {wrong}: expected 0 to {self.vocabulary - 1}")
        share = self.weight.shape[0]
        local = indices - dist.get_rank(self.group) * share
        elsewhere = (local < 0) | (local >= share)
        rows = F.embedding(local.masked_fill(elsewhere, 0), self.weight)
        rows = rows.masked_fill(elsewhere.unsqueeze(-1), 0.0)
        return reduce_from_tensor_parallel(rows, self.group)
        # END SOLUTION
