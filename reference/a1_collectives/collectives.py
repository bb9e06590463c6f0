"""The collectives that training is made of, each from point-to-point messages alone.

Ten functions with the meaning, and nearly the signature, of their namesakes in
``torch.distributed``. Three rules hold for all of them:

- ``group=None`` is the default group. ``src`` and ``dst`` are *global* ranks, as in PyTorch;
  lists are ordered by *group* rank. The two differ in every sub-group.
- An argument is never changed unless its function says "in place". Tensors need not be
  contiguous; empty tensors and groups of one rank are fine.
- What is wrong in the same way on all ranks raises ``ValueError`` on all ranks before anything is
  sent, and names the argument, what it was and what was expected.

Costs are told in the α-β model: p ranks, n bytes, α seconds per message, β seconds per byte
[Thakur, Rabenseifner, Gropp 2005; Chan, Heimlich, Purkayastha, van de Geijn 2007].
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

from .given import check_list, check_op, check_root_list, check_split_sizes, combine, place

# BEGIN SOLUTION
from .point_to_point import exchange, exchange_with_all, peers_from_next

# END SOLUTION


@torch.no_grad()
def broadcast(tensor: torch.Tensor, src: int, group: dist.ProcessGroup | None = None) -> None:
    """Copy ``tensor`` from ``src`` to every rank, in place, down a binomial tree.

    ⌈log₂ p⌉ rounds of nβ + α, p − 1 messages in all, and no rank sends more than ⌈log₂ p⌉: in
    each round every rank that has the data passes it on, so those who have it double.

    Args:
        tensor: read on ``src``, overwritten elsewhere; any shape and dtype, the same on all ranks.
        src: global rank of the root, a member of ``group``.
        group: the ranks that take part; ``None`` is the default group.

    Raises:
        ValueError: ``src`` is not in ``group``.
    """
    # BEGIN SOLUTION
    rank, size = place(group)
    root = _group_rank("src", src, group)
    parent, children = _binomial_tree((rank - root) % size, size)
    if parent is not None:
        exchange([], [(tensor, (parent + root) % size)], group)
    exchange([(tensor, (child + root) % size) for child in children], [], group)
    # END SOLUTION


@torch.no_grad()
def scatter(
    output: torch.Tensor,
    inputs: Sequence[torch.Tensor] | None,
    src: int,
    group: dist.ProcessGroup | None = None,
) -> None:
    """Give each rank its own tensor from the list on ``src``.

    Straight from the root: it sends p − 1 messages and nothing twice; every other rank sends none.
    (A tree is accepted too, within the handout's limits.)

    Args:
        output: receives this rank's tensor.
        inputs: on ``src`` one tensor per group rank; ``None`` on all other ranks. ``inputs[i]``
            has the shape and dtype of ``output`` on group rank i; shapes may differ between i.
        src: global rank of the root, a member of ``group``.
        group: the ranks that take part; ``None`` is the default group.

    Raises:
        ValueError: ``src`` is not in ``group``; on ``src``: ``inputs`` is missing, is not one
            tensor per rank, has another dtype than ``output``, or the root's own entry another
            shape; elsewhere: ``inputs`` is not ``None``.
    """
    # BEGIN SOLUTION
    rank, size = place(group)
    root = _group_rank("src", src, group)
    check_root_list("inputs", inputs, "output", output, rank, root, size)
    if inputs is None:
        exchange([], [(output, root)], group)
        return
    exchange([(chunk, peer) for peer, chunk in enumerate(inputs) if peer != rank], [], group)
    output.copy_(inputs[rank])
    # END SOLUTION


@torch.no_grad()
def gather(
    tensor: torch.Tensor,
    outputs: Sequence[torch.Tensor] | None,
    dst: int,
    group: dist.ProcessGroup | None = None,
) -> None:
    """Collect every rank's tensor into the list on ``dst``: ``scatter`` run backwards.

    Every rank but the root sends one message; the root sends none.

    Args:
        tensor: this rank's contribution; unchanged.
        outputs: on ``dst`` one tensor per group rank; ``None`` on all other ranks. ``outputs[i]``
            has the shape and dtype of ``tensor`` on group rank i; shapes may differ between i.
        dst: global rank of the root, a member of ``group``.
        group: the ranks that take part; ``None`` is the default group.

    Raises:
        ValueError: ``dst`` is not in ``group``; on ``dst``: ``outputs`` is missing, is not one
            tensor per rank, has another dtype than ``tensor``, or the root's own entry another
            shape; elsewhere: ``outputs`` is not ``None``.
    """
    # BEGIN SOLUTION
    rank, size = place(group)
    root = _group_rank("dst", dst, group)
    check_root_list("outputs", outputs, "tensor", tensor, rank, root, size)
    if outputs is None:
        exchange([(tensor, root)], [], group)
        return
    exchange([], [(chunk, peer) for peer, chunk in enumerate(outputs) if peer != rank], group)
    outputs[rank].copy_(tensor)
    # END SOLUTION


@torch.no_grad()
def reduce(
    tensor: torch.Tensor,
    dst: int,
    op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM,
    group: dist.ProcessGroup | None = None,
) -> None:
    """Combine all ranks' tensors into ``tensor`` on ``dst``, up a binomial tree.

    The tree of ``broadcast`` with its arrows turned round: ⌈log₂ p⌉ rounds of n(β + γ) + α, p − 1
    messages in all, at most one sent by any rank.

    Args:
        tensor: this rank's contribution, the same shape and dtype on all ranks. On ``dst`` it
            becomes the result; on all other ranks it is unchanged.
        dst: global rank of the root, a member of ``group``.
        op: SUM, AVG, MAX, MIN or PRODUCT.
        group: the ranks that take part; ``None`` is the default group.

    Raises:
        ValueError: ``dst`` is not in ``group``; ``op`` is none of the five; AVG of integers.
    """
    # BEGIN SOLUTION
    rank, size = place(group)
    root = _group_rank("dst", dst, group)
    check_op(op, tensor.dtype)
    parent, children = _binomial_tree((rank - root) % size, size)
    partial = tensor.clone(memory_format=torch.contiguous_format)
    arriving = torch.empty_like(partial)
    for child in reversed(children):  # smallest subtree first: it is complete first
        exchange([], [(arriving, (child + root) % size)], group)
        combine(partial, arriving, op)
    if parent is not None:
        exchange([(partial, (parent + root) % size)], [], group)
        return
    if op == dist.ReduceOp.AVG:
        partial.div_(size)
    tensor.copy_(partial)
    # END SOLUTION


@torch.no_grad()
def all_gather(
    outputs: Sequence[torch.Tensor],
    tensor: torch.Tensor,
    group: dist.ProcessGroup | None = None,
) -> None:
    """Collect every rank's tensor on every rank.

    A rank receives each part but its own once, (p − 1)/p of the result: no algorithm needs less.

    Args:
        outputs: one tensor per group rank, overwritten. ``outputs[i]`` has the shape and dtype of
            ``tensor`` on group rank i; shapes may differ between i.
        tensor: this rank's contribution; unchanged.
        group: the ranks that take part; ``None`` is the default group.

    Raises:
        ValueError: ``outputs`` is not one tensor per rank, has another dtype than ``tensor``, or
            this rank's entry another shape.
    """
    # BEGIN SOLUTION
    rank, size = place(group)
    check_list("outputs", outputs, "tensor", tensor, rank, size)
    exchange_with_all([tensor.contiguous()] * size, outputs, rank, group)
    outputs[rank].copy_(tensor)
    # END SOLUTION


@torch.no_grad()
def reduce_scatter(
    output: torch.Tensor,
    inputs: Sequence[torch.Tensor],
    op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM,
    group: dist.ProcessGroup | None = None,
) -> None:
    """Combine the ranks' lists entry by entry; group rank i receives entry i.

    A rank sends each entry but its own to the rank that reduces it, (p − 1)/p of its inputs.

    Args:
        output: receives the combination of all ranks' ``inputs[rank]``.
        inputs: one tensor per group rank, unchanged. ``inputs[i]`` has the same shape on all
            ranks, which is that of ``output`` on group rank i; shapes may differ between i.
        op: SUM, AVG, MAX, MIN or PRODUCT.
        group: the ranks that take part; ``None`` is the default group.

    Raises:
        ValueError: ``inputs`` is not one tensor per rank, has another dtype than ``output``, or
            this rank's entry another shape; ``op`` is none of the five; AVG of integers.
    """
    # BEGIN SOLUTION
    rank, size = place(group)
    check_op(op, output.dtype)
    check_list("inputs", inputs, "output", output, rank, size)
    contributions = _receive_buffers(inputs[rank], rank, size)
    exchange_with_all(inputs, contributions, rank, group)
    output.copy_(_reduce_in_rank_order(contributions, op))
    # END SOLUTION


@torch.no_grad()
def all_to_all_single(
    output: torch.Tensor,
    input: torch.Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: dist.ProcessGroup | None = None,
) -> None:
    """Send slice i of ``input`` to group rank i; receive a slice from each into ``output``.

    How tokens reach their experts. Every byte is sent once, straight to the rank that needs it; a
    slice of zero rows costs no message.

    Args:
        output: receives the slices in order of group rank along dimension 0.
        input: cut along dimension 0 in order of group rank; unchanged. All dimensions but the
            first, and the dtype, are those of ``output``.
        output_split_sizes: rows that come from each group rank; ``None``: all the same.
        input_split_sizes: rows that go to each group rank; ``None``: all the same. Entry j on
            rank i must be entry i of ``output_split_sizes`` on rank j.
        group: the ranks that take part; ``None`` is the default group.

    Raises:
        ValueError: before anything is sent: split sizes that are not one per rank, are negative
            or do not add up to dimension 0; ``None`` where dimension 0 is not divisible by the
            number of ranks; the two sizes of this rank's own slice, the dtypes or the other
            dimensions do not match.
    """
    # BEGIN SOLUTION
    rank, size = place(group)
    arriving = output.split(check_split_sizes("output", output, output_split_sizes, size))
    leaving = input.split(check_split_sizes("input", input, input_split_sizes, size))
    check_list("output slices", arriving, f"slice {rank} of input", leaving[rank], rank, size)
    exchange_with_all(leaving, arriving, rank, group)
    arriving[rank].copy_(leaving[rank])
    # END SOLUTION


@torch.no_grad()
def barrier(group: dist.ProcessGroup | None = None) -> None:
    """Return on no rank before all ranks have called it: the dissemination barrier.

    In round k every rank signals the rank 2ᵏ further on and waits for the one 2ᵏ behind. After
    ⌈log₂ p⌉ rounds word of every rank has reached every rank, for any p. At most 8 bytes a message
    [Hensgen, Finkel, Manber 1988].
    """
    # BEGIN SOLUTION
    rank, size = place(group)
    device = "cuda" if dist.get_backend(group) == "nccl" else "cpu"
    signal = torch.zeros(1, dtype=torch.uint8, device=device)
    heard = torch.empty_like(signal)
    distance = 1
    while distance < size:
        exchange(
            sends=[(signal, (rank + distance) % size)],
            receives=[(heard, (rank - distance) % size)],
            group=group,
        )
        distance *= 2
    # END SOLUTION


@torch.no_grad()
def all_reduce_pairwise(
    tensor: torch.Tensor,
    op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM,
    group: dist.ProcessGroup | None = None,
) -> None:
    """All-reduce in place, everyone sending everything to everyone: the quadratic one.

    One message between every two ranks each way, p(p − 1) in all: (p − 1)nβ per port, p/2 times
    what a ring moves. It is here to be beaten, and because for a few bytes one round wins.

    Args:
        tensor: the same shape and dtype on all ranks; becomes the result, the same bits on all.
        op: SUM, AVG, MAX, MIN or PRODUCT.
        group: the ranks that take part; ``None`` is the default group.

    Raises:
        ValueError: ``op`` is none of the five; AVG of integers.
    """
    # BEGIN SOLUTION
    rank, size = place(group)
    check_op(op, tensor.dtype)
    contributions = _receive_buffers(tensor, rank, size)
    exchange_with_all([tensor.contiguous()] * size, contributions, rank, group)
    tensor.copy_(_reduce_in_rank_order(contributions, op))
    # END SOLUTION


@torch.no_grad()
def all_reduce_parameter_server(
    tensor: torch.Tensor,
    op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM,
    group: dist.ProcessGroup | None = None,
    server: int = 0,
) -> None:
    """All-reduce in place through one rank: everybody's tensor to the server, the result back.

    Two rounds and 2(p − 1) messages, but all of them through one port: 2(p − 1)nβ + 2α. The
    server's link is what the ring of the next assignment takes away [Li et al. 2014].

    Args:
        tensor: the same shape and dtype on all ranks; becomes the result, the same bits on all.
        op: SUM, AVG, MAX, MIN or PRODUCT.
        group: the ranks that take part; ``None`` is the default group.
        server: *group* rank of the server, which contributes its own tensor like the others.

    Raises:
        ValueError: ``server`` outside 0 … p − 1; ``op`` is none of the five; AVG of integers.
    """
    # BEGIN SOLUTION
    rank, size = place(group)
    check_op(op, tensor.dtype)
    if not 0 <= server < size:
        raise ValueError(f"server={server}: expected a group rank from 0 to {size - 1}")
    if rank != server:
        exchange([(tensor, server)], [], group)
        exchange([], [(tensor, server)], group)
        return
    workers = peers_from_next(rank, size)
    contributions = _receive_buffers(tensor, rank, size)
    exchange([], [(contributions[worker], worker) for worker in workers], group)
    tensor.copy_(_reduce_in_rank_order(contributions, op))
    exchange([(tensor, worker) for worker in workers], [], group)
    # END SOLUTION


# BEGIN SOLUTION
def _group_rank(name: str, global_rank: int, group: dist.ProcessGroup | None) -> int:
    members = dist.get_process_group_ranks(group)
    if global_rank not in members:
        raise ValueError(f"{name}={global_rank}: expected a global rank of the group, {members}")
    return members.index(global_rank)


def _binomial_tree(rank: int, size: int) -> tuple[int | None, list[int]]:
    """Parent and children of a rank in the binomial tree with root 0, largest subtree first.

    The parent of a rank is the rank without its lowest set bit; the children add one lower bit.
    """
    lowest = rank & -rank if rank else 1 << (size - 1).bit_length()
    parent = rank - lowest if rank else None
    bits = [1 << k for k in reversed(range(lowest.bit_length() - 1))]
    return parent, [rank + bit for bit in bits if rank + bit < size]


def _receive_buffers(mine: torch.Tensor, rank: int, size: int) -> list[torch.Tensor]:
    """One contribution per rank: this rank's own, and room for the others'."""
    return [
        mine if peer == rank else torch.empty_like(mine, memory_format=torch.contiguous_format)
        for peer in range(size)
    ]


def _reduce_in_rank_order(
    contributions: Sequence[torch.Tensor], op: dist.ReduceOp.RedOpType
) -> torch.Tensor:
    """Reduce in the one order that all ranks share, since floating-point addition has no other.

    16-bit values are added in 32 bits and rounded once; they have travelled as 16 already.
    """
    narrow = contributions[0].dtype
    wide = torch.float32 if narrow in (torch.float16, torch.bfloat16) else narrow
    total = contributions[0].to(wide, copy=True)
    for contribution in contributions[1:]:
        combine(total, contribution.to(wide), op)
    if op == dist.ReduceOp.AVG:
        total.div_(len(contributions))
    return total.to(narrow)


# END SOLUTION
