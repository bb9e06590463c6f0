"""Ranks in four dimensions, and one gradient norm over all of them.

Sources: Narayanan et al., "Efficient large-scale language model training on GPU clusters using
Megatron-LM", 2021, section 3; Shoeybi et al., "Megatron-LM", 2019; Pascanu, Mikolov and Bengio, "On
the difficulty of training recurrent neural networks", 2013 (clipping by norm).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh


def build_mesh(
    world_size: int, tp: int = 1, cp: int = 1, pp: int = 1, ep: int = 1, dp: int = 1
) -> DeviceMesh:
    """All ranks as a mesh with the dimensions ("pp", "dp", "cp", "tp"), outermost first.

    Tensor-parallel neighbours have consecutive ranks; then come cp, dp and pp: the rank of
    coordinates (p, d, c, t) is ((p·dp + d)·cp + c)·tp + t.

    ``mesh.get_group(name)`` knows three more: "dp_cp" are the dp·cp ranks that hold the same dense
    parameters, in the order of their ranks; "ep" are ep neighbours among these (the first ep of
    them, the next ep, …), who share out the experts; "edp" are the dp·cp/ep ranks that hold the
    same experts. Every dimension exists, also of size 1.

    Every rank of the default group calls it with the same numbers. The mesh is on "cuda" where the
    default group is NCCL's, else on "cpu".

    Raises:
        ValueError: a size below 1; tp·cp·pp·dp is not `world_size`, or that not the number of ranks
            running; ep does not divide cp·dp. The message holds the numbers.

    Source: Narayanan et al. 2021, section 3.2: tensor parallelism inside a node.
    """
    raise NotImplementedError("a9.build_mesh")


def clip_grad_norm(
    sharded: Iterable[torch.nn.Parameter],
    replicated: Iterable[torch.nn.Parameter],
    max_norm: float,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """Scale all gradients, in place, so that their norm is at most `max_norm`; returns the norm.

    The norm is that of the one model that the ranks of `group` hold together: the square root of
    the sum of squares of the gradients in `sharded` (each rank has its own part), over all ranks,
    and of those in `replicated` (each rank has all of them), once.

    Args:
        sharded, replicated: parameters of any shapes and floating dtypes; one whose `grad` is None
            counts as zeros. Either may be empty, on some ranks or on all.
        max_norm: above 0; `math.inf` never clips.
        group: who holds the shards.

    Returns:
        The norm before clipping, 0-dimensional, the same bits on every rank. Gradients are
        multiplied by min(1, max_norm / (norm + 1e-6)), as `torch.nn.utils.clip_grad_norm_` does.

    One all-reduce of one number; no gradient is sent. Summed in float64: the squares of 16-bit
    gradients lose their digits, and more, in 16 bits.

    Raises:
        ValueError: `max_norm` is not above 0.

    Source: Pascanu, Mikolov and Bengio 2013, algorithm 1.
    """
    raise NotImplementedError("a9.clip_grad_norm")
