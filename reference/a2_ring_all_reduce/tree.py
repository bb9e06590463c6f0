"""All-reduce along a hypercube: the bytes of a ring, but logarithmic in latency.

Sources: Rabenseifner, "Optimization of collective reduction operations", 2004; Thakur, Rabenseifner
and Gropp, "Optimization of collective communication operations in MPICH", 2005.
"""

from __future__ import annotations

import torch
import torch.distributed as dist

# BEGIN SOLUTION
from .given import check_op, place
from .ring import flattened, fold, wait_all


def exchange(
    send: torch.Tensor, receive: torch.Tensor, peer: int, group: dist.ProcessGroup | None
) -> None:
    """Send to and receive from group rank `peer` in one batch; an empty side is left out."""
    operations = []
    if send.numel() > 0:
        operations.append(dist.P2POp(dist.isend, send, group=group, group_peer=peer))
    if receive.numel() > 0:
        operations.append(dist.P2POp(dist.irecv, receive, group=group, group_peer=peer))
    if operations:
        wait_all(dist.batch_isend_irecv(operations))


# END SOLUTION


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
    # BEGIN SOLUTION
    check_op(op, tensor.dtype)
    rank, world_size = place(group)
    bits = world_size.bit_length() - 1
    extra = world_size - (1 << bits)  # so many pairs (2i, 2i + 1) act as one: the odd one for both
    paired = rank < 2 * extra
    virtual_rank = rank // 2 if paired else rank - extra
    with flattened(tensor) as flat:
        if paired and flat.numel() > 0:
            if rank % 2 == 0:
                dist.send(flat, group=group, group_dst=rank + 1)
                dist.recv(flat, group=group, group_src=rank + 1)
                return
            received = torch.empty_like(flat)
            dist.recv(received, group=group, group_src=rank - 1)
            fold(flat, received, op)
        part, path = flat, []
        scratch = torch.empty_like(flat.tensor_split(2)[0])
        for bit in range(bits):  # halve: both partners hold the same part and share it out
            peer = virtual_rank ^ (1 << bit)
            peer = 2 * peer + 1 if peer < extra else peer + extra
            low, high = part.tensor_split(2)
            mine, theirs = (high, low) if virtual_rank >> bit & 1 else (low, high)
            received = scratch[: mine.numel()]
            exchange(theirs, received, peer, group)
            fold(mine, received, op)
            path.append((mine, theirs, peer))
            part = mine
        if op == dist.ReduceOp.AVG:
            part.div_(world_size)
        for mine, theirs, peer in reversed(path):  # double: the same partners, the other way round
            exchange(mine, theirs, peer, group)
        if paired and flat.numel() > 0:
            dist.send(flat, group=group, group_dst=rank - 1)
    # END SOLUTION
