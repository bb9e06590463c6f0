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

# BEGIN SOLUTION
#: The root's dimensions, outermost first: the last one has consecutive ranks.
_DIMENSIONS = ("pp", "dp", "cp", "tp")

#: Added to the norm before dividing, as torch does, so that a norm of 0 divides.
_EPSILON = 1e-6


def _check_sizes(world_size: int, sizes: dict[str, int], ep: int) -> None:
    for name, size in {"world_size": world_size, **sizes, "ep": ep}.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"{name}={size!r}: expected a whole number, 1 or more")
    product = 1
    for size in sizes.values():
        product *= size
    if product != world_size:
        words = " × ".join(f"{name} {size}" for name, size in sizes.items())
        raise ValueError(f"{words} = {product} ranks, but world_size is {world_size}")
    if dist.get_world_size() != world_size:
        raise ValueError(f"world_size={world_size}, but {dist.get_world_size()} ranks are running")
    replicas = sizes["cp"] * sizes["dp"]
    if replicas % ep:
        raise ValueError(
            f"ep={ep} does not divide cp {sizes['cp']} × dp {sizes['dp']} = {replicas}"
        )


def _squares(parameters: list[torch.nn.Parameter]) -> float | torch.Tensor:
    """The sum of the squares of all gradients, in float64."""
    norms = [
        torch.linalg.vector_norm(parameter.grad, dtype=torch.float64).square()
        for parameter in parameters
        if parameter.grad is not None
    ]
    return torch.stack(norms).sum() if norms else 0.0


# END SOLUTION


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
    # BEGIN SOLUTION
    sizes = {"tp": tp, "cp": cp, "dp": dp, "pp": pp}
    _check_sizes(world_size, sizes, ep)
    device = "cuda" if "nccl" in str(dist.get_backend()) else "cpu"
    mesh = init_device_mesh(
        device, tuple(sizes[name] for name in _DIMENSIONS), mesh_dim_names=_DIMENSIONS
    )
    replicas = mesh["dp", "cp"]._flatten("dp_cp")
    # `_unflatten` hands out a mesh of its own; flattening one of its dimensions under a new name
    # is what makes the name known to the root.
    experts = replicas._unflatten(0, (dp * cp // ep, ep), ("outer", "inner"))
    experts["outer"]._flatten("edp")
    experts["inner"]._flatten("ep")
    return mesh
    # END SOLUTION


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
    # BEGIN SOLUTION
    if not max_norm > 0:
        raise ValueError(f"max_norm={max_norm!r}: expected a number above 0")
    own, shared = list(sharded), list(replicated)
    device = next(
        (each.grad.device for each in (*own, *shared) if each.grad is not None),
        torch.device("cuda" if "nccl" in str(dist.get_backend(group)) else "cpu"),
    )
    squares = torch.zeros((), dtype=torch.float64, device=device) + _squares(own)
    dist.all_reduce(squares, group=group)
    norm = (squares + _squares(shared)).sqrt()
    factor = (max_norm / (norm + _EPSILON)).clamp(max=1.0)
    for parameter in (*own, *shared):
        if parameter.grad is not None:
            parameter.grad.mul_(factor.to(parameter.grad.device))
    return norm
    # END SOLUTION
