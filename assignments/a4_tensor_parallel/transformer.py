"""The two halves of a transformer block, cut over the ranks: one all-reduce forward, one backward.

    MLP         x ─f─► up (columns) ─► gelu ─► down (rows) ─g─► y
    attention   x ─f─► query, key, value (columns: heads) ─► attention ─► output (rows) ─g─► y

Between f and g nothing is sent: GELU works element by element, attention head by head, so a rank
that has some columns, or some heads, can go on alone [Shoeybi et al. 2019, section 3].
``state_dict`` has the dense module's names; each entry is a shard.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from .dense import MLP, Attention, attend, split_heads


class ParallelMLP(nn.Module):
    """``MLP`` with ``up`` cut by columns and ``down`` by rows.

    Parameters: ``up.weight`` (intermediate / n, hidden), ``up.bias`` (intermediate / n,),
    ``down.weight`` (hidden, intermediate / n), ``down.bias`` (hidden,), whole.
    """

    @classmethod
    def from_dense(cls, module: MLP, group: dist.ProcessGroup | None = None) -> ParallelMLP:
        """This rank's shards of a dense MLP that is the same on all ranks; it is not changed.

        Raises:
            ValueError: n does not divide intermediate; the message names both numbers.
        """
        raise NotImplementedError("a4.ParallelMLP")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(sequence, batch, hidden)``, the same on all ranks, to the same shape, also the same.

        One all-reduce forward and one backward, both of ``x``'s size.
        """
        raise NotImplementedError("a4.ParallelMLP")


class ParallelAttention(nn.Module):
    """``Attention`` with its heads shared out: rank i of n has heads i·heads/n … and their
    key-value heads.

    Parameters: ``query.weight`` (heads / n · head_dim, hidden), ``key.weight`` and
    ``value.weight`` (kv_heads / n · head_dim, hidden), ``output.weight`` (hidden, heads / n ·
    head_dim); biases to match, ``output.bias`` whole.
    """

    @classmethod
    def from_dense(
        cls, module: Attention, group: dist.ProcessGroup | None = None
    ) -> ParallelAttention:
        """This rank's shards of a dense attention that is the same on all ranks; not changed.

        Raises:
            ValueError: n does not divide heads, or kv_heads; the message names both numbers.
        """
        raise NotImplementedError("a4.ParallelAttention")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(sequence, batch, hidden)``, the same on all ranks, to the same shape, also the same.

        One all-reduce forward and one backward, both of ``x``'s size. Dropout on the attention
        probabilities (in training): ranks draw different masks, also when they were all seeded
        alike, and leave the default random generator as alike as they found it.
        """
        raise NotImplementedError("a4.ParallelAttention")
