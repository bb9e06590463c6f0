"""The conjugate pairs of tensor parallelism: each is the other one's backward.

                           forward       backward
    copy_to (f)            identity      all-reduce
    reduce_from (g)        all-reduce    identity
    scatter_to             slice         all-gather
    gather_from            all-gather    slice

Slices are equal shares of the last dimension, in group order. The four are right because the loss
is computed in the same way on all ranks: what is replicated has the *whole* gradient on each of
them, and what each rank holds a share of has that share of the gradient [Shoeybi et al. 2019,
section 3]. ``group=None`` is the default group; in a group of one rank nothing is sent.

None of them changes a tensor that it was given, neither its argument nor a gradient: autograd may
hand the same gradient to somebody else.
"""

from __future__ import annotations

# BEGIN SOLUTION
from typing import Any

# END SOLUTION
import torch
import torch.distributed as dist

# BEGIN SOLUTION
Group = dist.ProcessGroup | None


def share_of(size: int, what: str, group: Group) -> int:
    """``size`` divided by the size of the group; ValueError when that leaves a remainder."""
    ranks = dist.get_world_size(group)
    if size % ranks:
        raise ValueError(f"{what} of {size} cannot be divided into {ranks} equal shares")
    return size // ranks


def own_slice(tensor: torch.Tensor, dim: int, group: Group) -> torch.Tensor:
    """This rank's share of ``tensor`` along ``dim``, in memory of its own."""
    share = share_of(tensor.shape[dim], f"dimension {dim}", group)
    return tensor.narrow(dim, dist.get_rank(group) * share, share).clone(
        memory_format=torch.contiguous_format
    )


def all_reduced(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """The sum over the group, as a new tensor (or ``tensor`` itself when it is alone)."""
    if dist.get_world_size(group) == 1:
        return tensor
    # A gradient may be expanded (as sum()'s is): collectives need memory for each element.
    total = tensor.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=group)
    return total


def all_gathered_last(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """All ranks' tensors side by side in the last dimension, in group order."""
    size = dist.get_world_size(group)
    if size == 1:
        return tensor
    shares = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(size)]
    dist.all_gather(shares, tensor.contiguous(), group=group)
    return torch.cat(shares, dim=-1)


class _Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: Group) -> torch.Tensor:
        ctx.group = group
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return all_reduced(gradient, ctx.group), None


class _Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: Group) -> torch.Tensor:
        total = all_reduced(tensor, group)
        return tensor.view_as(tensor) if total is tensor else total

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: Group) -> torch.Tensor:
        ctx.group = group
        return own_slice(tensor, -1, group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return all_gathered_last(gradient, ctx.group), None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: Group) -> torch.Tensor:
        ctx.group = group
        whole = all_gathered_last(tensor, group)
        return tensor.view_as(tensor) if whole is tensor else whole

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        # Every rank's loss is the same loss: the other ranks' gradients would only repeat this one.
        return own_slice(gradient, -1, ctx.group), None


# END SOLUTION


def copy_to_tensor_parallel(
    tensor: torch.Tensor, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """Hand a replicated tensor to layers that are cut: Megatron's f.

    Args:
        tensor: any shape, floating point, the same on all ranks.
        group: the ranks that share the layer.

    Returns:
        ``tensor``'s values, same shape and dtype. Backward: one all-reduce, the sum of all ranks'
        gradients, since each rank's shard saw the whole of ``tensor``.
    """
    # BEGIN SOLUTION
    return _Copy.apply(tensor, group)
    # END SOLUTION


def reduce_from_tensor_parallel(
    tensor: torch.Tensor, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """Add up the ranks' partial results: Megatron's g.

    Args:
        tensor: any shape, floating point, the same shape and dtype on all ranks; unchanged.
        group: the ranks that share the layer.

    Returns:
        The sum over the ranks, by one all-reduce, as a new tensor. Backward: the gradient as it
        is, nothing is sent.
    """
    # BEGIN SOLUTION
    return _Reduce.apply(tensor, group)
    # END SOLUTION


def scatter_to_tensor_parallel(
    tensor: torch.Tensor, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """Keep this rank's share of the last dimension of a replicated tensor.

    Args:
        tensor: ``(…, columns)``, floating point, the same on all ranks.
        group: n ranks that share the layer.

    Returns:
        ``(…, columns / n)``, group rank i the i-th share; nothing is sent. Backward: one
        all-gather of the shares' gradients.

    Raises:
        ValueError: n does not divide the last dimension; the message names both numbers.
    """
    # BEGIN SOLUTION
    return _Scatter.apply(tensor, group)
    # END SOLUTION


def gather_from_tensor_parallel(
    tensor: torch.Tensor, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """Put the ranks' shares of the last dimension together.

    Args:
        tensor: ``(…, columns / n)``, floating point, the same shape and dtype on all ranks.
        group: n ranks that share the layer.

    Returns:
        ``(…, columns)``, the same on all ranks, by one all-gather. Backward: this rank's share of
        the gradient; nothing is sent.
    """
    # BEGIN SOLUTION
    return _Gather.apply(tensor, group)
    # END SOLUTION
