"""All-reduce around a ring: bandwidth-optimal, and no rank is special.

Every rank sends to the next rank of the group and receives from the previous one, nothing else.
The vector is cut into n chunks. A reduce-scatter carries each chunk once around the ring and lets
every rank add its own part; an all-gather carries the finished chunks around once more.

Sources: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
2009 (the algorithm and the lower bound); Gibiansky, "Bringing HPC techniques to deep learning",
Baidu 2017, and Sergeev and Del Balso, "Horovod", 2018 (its use for gradients); the NCCL user guide.
"""

from __future__ import annotations

import torch
import torch.distributed as dist


@torch.no_grad()
def ring_reduce_scatter(
    output: torch.Tensor,
    tensor: torch.Tensor,
    op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM,
    group: dist.ProcessGroup | None = None,
) -> None:
    """Reduce `tensor` over the ranks of the group and leave chunk i of the result on rank i.

    Args:
        output: (rows, *), any dtype that `op` makes sense for; written in place.
        tensor: (n * rows, *) for n ranks, dtype of `output`; not changed. Chunk i is rows
            i * rows to (i + 1) * rows, i the rank in the group.
        op: SUM, AVG, MAX, MIN or PRODUCT, elementwise, in the tensors' own dtype.
        group: None for the default group.

    Each rank sends (n - 1) chunks, in n - 1 rounds, to the next rank of the group only.

    Raises:
        ValueError: `tensor` is not n times `output` along dimension 0; the dtypes differ; `op` is
            none of the five; AVG of an integer or boolean dtype.

    Source: Patarasuk and Yuan 2009; the interface of `dist.reduce_scatter_tensor`.
    """
    raise NotImplementedError("a2.ring_reduce_scatter")


@torch.no_grad()
def ring_all_gather(
    output: torch.Tensor, tensor: torch.Tensor, group: dist.ProcessGroup | None = None
) -> None:
    """Concatenate `tensor` of all ranks, in the order of their group ranks, on every rank.

    Args:
        output: (n * rows, *) for n ranks; written in place.
        tensor: (rows, *), dtype of `output`, any dtype; not changed.
        group: None for the default group.

    Each rank sends (n - 1) chunks, in n - 1 rounds, to the next rank of the group only.

    Raises:
        ValueError: `output` is not n times `tensor` along dimension 0; the dtypes differ.

    Source: Thakur, Rabenseifner and Gropp 2005 (ring all-gather); the interface of
    `dist.all_gather_into_tensor`.
    """
    raise NotImplementedError("a2.ring_all_gather")


@torch.no_grad()
def ring_all_reduce(
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

    For n ranks: at most 2 (n - 1) rounds, and each rank sends at most 2 (n - 1) * ceil(N / n)
    elements, all of them to the next rank of the group; it receives from the previous one only.

    Raises:
        ValueError: `op` is none of the five; AVG of an integer or boolean dtype; `tensor` is
            expanded (its elements share memory).

    Source: Patarasuk and Yuan 2009; Gibiansky 2017.
    """
    raise NotImplementedError("a2.ring_all_reduce")


@torch.no_grad()
def pipelined_ring_all_reduce(
    tensor: torch.Tensor,
    op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM,
    group: dist.ProcessGroup | None = None,
    segment_bytes: int = 1 << 20,
) -> None:
    """`ring_all_reduce` in segments: one segment is reduced while others are on the wire.

    Args:
        tensor, op, group: as for `ring_all_reduce`.
        segment_bytes: bytes of the largest message, at least 1; a segment is at least one element.

    Bytes and peers are those of `ring_all_reduce`. Where reducing a byte takes as long as sending
    it, the virtual time is at most 1.25 times the larger of all transfers and all reductions.

    Raises:
        ValueError: as `ring_all_reduce`; `segment_bytes` less than 1.

    Source: Patarasuk and Yuan 2009; the segmented ring of Open MPI; the slices of NCCL.
    """
    raise NotImplementedError("a2.pipelined_ring_all_reduce")
