"""All-reduce along a hypercube: the bytes of a ring, but logarithmic in latency.

Sources: Rabenseifner, "Optimization of collective reduction operations", 2004; Thakur, Rabenseifner
and Gropp, "Optimization of collective communication operations in MPICH", 2005.
"""

from __future__ import annotations

import torch
import torch.distributed as dist


@torch.no_grad()
def halving_doubling_all_reduce(
    tensor: torch.Tensor,
    op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM,
    group: dist.ProcessGroup | None = None,
) -> None:
    """Replace `tensor` on every rank by the reduction over all ranks, bit for bit the same.

    Args:
        tensor: any shape and length N, also 0, fewer elements than ranks, or not contiguous; in
            place. What travels has the tensor's own dtype.
        op: SUM, AVG, MAX, MIN or PRODUCT, elementwise.
        group: None for the default group.

    Let q be the largest power of two that is at most the number of ranks n. Rounds: 2 lg q, and 2
    more when n is not q. Each of q ranks sends 2 (q - 1) / q of the vector (each halving rounds up
    to whole elements); when n is not q, n - q ranks give their vector away first and get the result
    last, which costs the two ranks of such a pair one vector each on top.

    Raises:
        ValueError: `op` is none of the five; AVG of an integer or boolean dtype; `tensor` is
            expanded (its elements share memory).

    Source: Rabenseifner 2004; Thakur, Rabenseifner and Gropp 2005 (Rabenseifner's algorithm).
    """
    raise NotImplementedError("a2.halving_doubling_all_reduce")
