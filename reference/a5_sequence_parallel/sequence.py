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

# BEGIN SOLUTION
from typing import Any

# END SOLUTION
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from ..a4_tensor_parallel.dense import Block, attend, dropout, split_heads
from .given import Shard, own_share, share_of, whole_parameter
from .norm import layer_norm

# BEGIN SOLUTION
Group = dist.ProcessGroup | None


def all_gathered(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """All ranks' tensors one after the other along dimension 0 (itself when it is alone)."""
    whole, work = all_gather_started(tensor, group)
    if work is not None:
        work.wait()
    return whole


def all_gather_started(tensor: torch.Tensor, group: Group) -> tuple[torch.Tensor, dist.Work | None]:
    """As ``all_gathered``, but still on its way: valid after the work's ``wait()``."""
    size = dist.get_world_size(group)
    if size == 1:
        return tensor, None
    tensor = tensor.contiguous()
    whole = tensor.new_empty((size * tensor.shape[0], *tensor.shape[1:]))
    return whole, dist.all_gather(list(whole.chunk(size)), tensor, group=group, async_op=True)


def reduce_scattered(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """This rank's share of the sum over the group along dimension 0."""
    size = dist.get_world_size(group)
    if size == 1:
        return tensor
    shares = list(tensor.contiguous().chunk(size))
    own = torch.empty_like(shares[0])
    dist.reduce_scatter(own, shares, group=group)
    return own


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: Group) -> torch.Tensor:
        ctx.group = group
        whole = all_gathered(tensor, group)
        return tensor.view_as(tensor) if whole is tensor else whole

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return reduce_scattered(gradient, ctx.group), None


class _ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: Group) -> torch.Tensor:
        ctx.group = group
        share_of(tensor.shape[0], "dimension 0", group)
        own = reduce_scattered(tensor, group)
        return tensor.view_as(tensor) if own is tensor else own

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return all_gathered(gradient, ctx.group), None


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: Group) -> torch.Tensor:
        ctx.group = group
        return own_share(tensor, 0, "dimension 0", group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return all_gathered(gradient, ctx.group), None


# END SOLUTION


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
    # BEGIN SOLUTION
    return _Gather.apply(tensor, group)
    # END SOLUTION


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
    # BEGIN SOLUTION
    return _ReduceScatter.apply(tensor, group)
    # END SOLUTION


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
    # BEGIN SOLUTION
    return _Scatter.apply(tensor, group)
    # END SOLUTION


# BEGIN SOLUTION
class _SumGradients(torch.autograd.Function):
    """Parameters that are replicated but used on a share of the tokens: their gradients add up."""

    @staticmethod
    def forward(ctx: Any, group: Group, *parameters: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.group = group
        return tuple(parameter.view_as(parameter) for parameter in parameters)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        if dist.get_world_size(ctx.group) == 1:
            return None, *gradients
        total = torch.stack(gradients)  # one message for weight and bias
        dist.all_reduce(total, group=ctx.group)
        return None, *total


# END SOLUTION


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
        # BEGIN SOLUTION
        layer = cls()
        layer.group = group
        layer.eps = norm.eps
        layer.weight = None if norm.weight is None else whole_parameter(norm.weight)
        layer.bias = None if norm.bias is None else whole_parameter(norm.bias)
        return layer
        # END SOLUTION

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(sequence / n, …, hidden)``, this rank's tokens, to the same shape.

        Nothing is sent forward. Backward: the gradients of ``weight`` and ``bias`` are summed over
        the group (each rank saw its own tokens only), in one all-reduce.
        """
        # BEGIN SOLUTION
        whole = [p for p in (self.weight, self.bias) if p is not None]
        summed = list(_SumGradients.apply(self.group, *whole)) if whole else []
        weight = summed.pop(0) if self.weight is not None else None
        bias = summed.pop(0) if self.bias is not None else None
        return layer_norm(x, weight, bias, self.eps)
        # END SOLUTION


# BEGIN SOLUTION
class _GatherLinear(torch.autograd.Function):
    """Several linear layers, cut by columns, on the gathered sequence.

    What is kept for backward is this rank's share of the input, not the whole: backward gathers it
    again, while the gradient of the input is being computed [Korthikanti et al. 2022].
    """

    @staticmethod
    def forward(
        ctx: Any, group: Group, x: torch.Tensor, *parameters: torch.Tensor | None
    ) -> tuple[torch.Tensor, ...]:
        weights, biases = parameters[0::2], parameters[1::2]
        ctx.group = group
        ctx.save_for_backward(x, *weights)
        whole = all_gathered(x, group)
        return tuple(F.linear(whole, w, b) for w, b in zip(weights, biases, strict=True))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, *weights = ctx.saved_tensors
        needs = ctx.needs_input_grad
        work = None
        if any(needs[2::2]):
            whole, work = all_gather_started(x, ctx.group)
        grad_x = None
        if needs[1]:
            total = gradients[0] @ weights[0]
            for gradient, weight in zip(gradients[1:], weights[1:], strict=True):
                total += gradient @ weight
            grad_x = reduce_scattered(total, ctx.group)
        if work is not None:
            work.wait()
        found: list[torch.Tensor | None] = [None, grad_x]
        for number, gradient in enumerate(gradients):
            rows = gradient.flatten(0, -2)
            found.append(rows.t() @ whole.flatten(0, -2) if needs[2 + 2 * number] else None)
            found.append(rows.sum(0) if needs[3 + 2 * number] else None)
        return tuple(found)


class _LinearReduceScatter(torch.autograd.Function):
    """A linear layer cut by rows, its sum cut along the sequence; the bias is added once.

    Backward gathers the gradient of all tokens, so that the bias's gradient is whole on every
    rank without a message of its own.
    """

    @staticmethod
    def forward(
        ctx: Any, group: Group, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        ctx.group = group
        ctx.save_for_backward(x, weight)
        y = reduce_scattered(F.linear(x, weight), group)
        return y if bias is None else y + bias

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        whole = all_gathered(gradient, ctx.group)
        rows = whole.flatten(0, -2)
        needs = ctx.needs_input_grad
        return (
            None,
            whole @ weight if needs[1] else None,
            rows.t() @ x.flatten(0, -2) if needs[2] else None,
            rows.sum(0) if needs[3] else None,
        )


def generator_of_rank(device: torch.device, group: Group) -> torch.Generator:
    """Random numbers that differ from rank to rank, for what is cut.

    Its seed is drawn from the default generator. Ranks whose default generators agree therefore
    still agree afterwards, as what is replicated needs.
    """
    seed = int(torch.randint(1 << 40, ()))
    generator = torch.Generator(device)
    generator.manual_seed(seed * dist.get_world_size(group) + dist.get_rank(group))
    return generator


# END SOLUTION


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
        # BEGIN SOLUTION
        dense = block.attention
        share_of(dense.heads, "heads", group)
        share_of(dense.kv_heads, "kv_heads", group)
        parallel = cls()
        parallel.group = group
        parallel.head_dim = dense.head_dim
        parallel.causal = dense.causal
        parallel.attention_dropout = dense.dropout
        parallel.dropout = block.dropout
        parallel.attention_norm = SequenceParallelLayerNorm.from_dense(block.attention_norm, group)
        heads = {"query": "heads", "key": "kv_heads", "value": "kv_heads"}
        shards = {name: Shard(getattr(dense, name), 0, what, group) for name, what in heads.items()}
        shards["output"] = Shard(dense.output, 1, "heads", group)
        parallel.attention = nn.ModuleDict(shards)
        parallel.mlp_norm = SequenceParallelLayerNorm.from_dense(block.mlp_norm, group)
        up = Shard(block.mlp.up, 0, "intermediate", group)
        down = Shard(block.mlp.down, 1, "intermediate", group)
        parallel.mlp = nn.ModuleDict({"up": up, "down": down})
        parallel.train(block.training)
        return parallel
        # END SOLUTION

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
        # BEGIN SOLUTION
        drops = self.training and max(self.dropout, self.attention_dropout) > 0
        generator = generator_of_rank(x.device, self.group) if drops else None
        attended = self._attend(self.attention_norm(x), generator)
        x = x + dropout(attended, self.dropout, self.training, generator)
        up, down = self.mlp["up"], self.mlp["down"]
        (wide,) = _GatherLinear.apply(self.group, self.mlp_norm(x), up.weight, up.bias)
        y = _LinearReduceScatter.apply(self.group, F.gelu(wide), down.weight, down.bias)
        return x + dropout(y, self.dropout, self.training, generator)
        # END SOLUTION

    # BEGIN SOLUTION
    def _attend(self, x: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
        shards = [self.attention[name] for name in ("query", "key", "value")]
        parameters = [p for shard in shards for p in (shard.weight, shard.bias)]
        query, key, value = (
            split_heads(each, self.head_dim)
            for each in _GatherLinear.apply(self.group, x, *parameters)
        )
        out = attend(
            query, key, value, self.causal, self.attention_dropout, self.training, generator
        )
        output = self.attention["output"]
        return _LinearReduceScatter.apply(self.group, out, output.weight, output.bias)

    # END SOLUTION
