"""All-reduce over two levels: fast links inside a node, slow ones between nodes.

Sources: Jia et al., "Highly scalable deep learning training system with mixed-precision", 2018, and
Mikami et al., "Massively distributed SGD", 2018 (reduce inside, all-reduce between, gather inside);
Horovod's hierarchical all-reduce, 2018; Chan et al., "Collective communication", 2007 (costs).
"""

from __future__ import annotations

import torch
import torch.distributed as dist


@torch.no_grad()
def hierarchical_all_reduce(
    tensor: torch.Tensor,
    op: dist.ReduceOp.RedOpType,
    intra_group: dist.ProcessGroup | None,
    inter_group: dist.ProcessGroup | None,
) -> None:
    """Replace `tensor` on every rank by the reduction over all ranks, bit for bit the same.

    Args:
        tensor: any shape and length N, also 0, fewer elements than ranks, or not contiguous; in
            place. What travels has the tensor's own dtype.
        op: SUM, AVG, MAX, MIN or PRODUCT, elementwise; AVG over all g * k ranks.
        intra_group: the g ranks of this rank's node.
        inter_group: the k ranks, one of each node, that have this rank's place in their node. All
            nodes have g ranks, so that every rank is in one group of either kind.

    Every GPU takes part between the nodes, each with 1/g of the vector: it sends at most
    2 (k - 1) * ceil(ceil(N / g) / k) elements over `inter_group`.

    Raises:
        ValueError: `op` is none of the five; AVG of an integer or boolean dtype; `tensor` is
            expanded (its elements share memory).

    Source: Jia et al. 2018; Mikami et al. 2018.
    """
    raise NotImplementedError("a2.hierarchical_all_reduce")
