"""Given: cutting tensors into equal shares, with the error that the tasks ask for."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

Group = dist.ProcessGroup | None


def share_of(size: int, what: str, group: Group) -> int:
    """``size`` divided by the size of the group.

    Raises:
        ValueError: that leaves a remainder; the message names ``what``, the size and the ranks.
    """
    ranks = dist.get_world_size(group)
    if size % ranks:
        raise ValueError(f"{what} of {size} cannot be divided into {ranks} equal shares")
    return size // ranks


def own_share(tensor: torch.Tensor, dim: int, what: str, group: Group) -> torch.Tensor:
    """This rank's share of ``tensor`` along ``dim``, in its own memory; raises as ``share_of``."""
    share = share_of(tensor.shape[dim], what, group)
    return tensor.narrow(dim, dist.get_rank(group) * share, share).clone(
        memory_format=torch.contiguous_format
    )


def whole_parameter(parameter: torch.Tensor) -> nn.Parameter:
    """A copy of a parameter that every rank keeps whole."""
    return nn.Parameter(parameter.detach().clone(), requires_grad=parameter.requires_grad)


class Shard(nn.Module):
    """The parameters of a linear layer that is cut along ``dim`` of its weight (out, in).

    With dim 0 the bias is cut too, with dim 1 it is whole on every rank. Raises as ``share_of``.
    """

    def __init__(self, linear: nn.Linear, dim: int, what: str, group: Group) -> None:
        super().__init__()
        weight, bias = linear.weight, linear.bias
        self.weight = nn.Parameter(own_share(weight.detach(), dim, what, group))
        self.weight.requires_grad_(weight.requires_grad)
        self.bias = None if bias is None else whole_parameter(bias)
        if bias is not None and dim == 0:
            self.bias = nn.Parameter(own_share(bias.detach(), 0, what, group))
            self.bias.requires_grad_(bias.requires_grad)
