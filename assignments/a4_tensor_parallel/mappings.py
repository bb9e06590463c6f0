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

import torch
import torch.distributed as dist


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
    raise NotImplementedError("a4.copy_to_tensor_parallel")


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
    raise NotImplementedError("a4.reduce_from_tensor_parallel")


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
    raise NotImplementedError("a4.scatter_to_tensor_parallel")


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
    raise NotImplementedError("a4.gather_from_tensor_parallel")
