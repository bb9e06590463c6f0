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

# BEGIN SOLUTION
from .layers import ColumnParallelLinear, RowParallelLinear
from .mappings import copy_to_tensor_parallel, share_of


def generator_of_rank(device: torch.device, group: dist.ProcessGroup | None) -> torch.Generator:
    """Random numbers that differ from rank to rank, for what is cut.

    Its seed is drawn from the default generator. Ranks whose default generators agree therefore
    still agree afterwards, as what is replicated needs.
    """
    seed = int(torch.randint(1 << 40, ()))
    generator = torch.Generator(device)
    generator.manual_seed(seed * dist.get_world_size(group) + dist.get_rank(group))
    return generator


# END SOLUTION


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
        # BEGIN SOLUTION
        parallel = cls()
        parallel.up = ColumnParallelLinear.from_linear(module.up, group)
        parallel.down = RowParallelLinear.from_linear(module.down, group)
        parallel.train(module.training)
        return parallel
        # END SOLUTION

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(sequence, batch, hidden)``, the same on all ranks, to the same shape, also the same.

        One all-reduce forward and one backward, both of ``x``'s size.
        """
        # BEGIN SOLUTION
        return self.down(F.gelu(self.up(x)))
        # END SOLUTION


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
        # BEGIN SOLUTION
        share_of(module.heads, "heads", group)
        share_of(module.kv_heads, "kv_heads", group)
        parallel = cls()
        parallel.group = group
        parallel.head_dim = module.head_dim
        parallel.causal = module.causal
        parallel.dropout = module.dropout
        parallel.query = ColumnParallelLinear.from_linear(module.query, group)
        parallel.key = ColumnParallelLinear.from_linear(module.key, group)
        parallel.value = ColumnParallelLinear.from_linear(module.value, group)
        parallel.output = RowParallelLinear.from_linear(module.output, group)
        parallel.train(module.training)
        return parallel
        # END SOLUTION

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(sequence, batch, hidden)``, the same on all ranks, to the same shape, also the same.

        One all-reduce forward and one backward, both of ``x``'s size. Dropout on the attention
        probabilities (in training): ranks draw different masks, also when they were all seeded
        alike, and leave the default random generator as alike as they found it.
        """
        # BEGIN SOLUTION
        # One f for all three products: their three layers would each send a gradient of their own.
        x = copy_to_tensor_parallel(x, self.group)
        query, key, value = (
            split_heads(F.linear(x, layer.weight, layer.bias), self.head_dim)
            for layer in (self.query, self.key, self.value)
        )
        drops = self.training and self.dropout > 0
        generator = generator_of_rank(x.device, self.group) if drops else None
        out = attend(query, key, value, self.causal, self.dropout, self.training, generator)
        return self.output(out)
        # END SOLUTION
