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
    raise NotImplementedError("a1.broadcast")


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
    raise NotImplementedError("a1.scatter")


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
    raise NotImplementedError("a1.gather")


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
    raise NotImplementedError("a1.reduce")


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
    raise NotImplementedError("a1.all_gather")


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
    raise NotImplementedError("a1.reduce_scatter")


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
    raise NotImplementedError("a1.all_to_all_single")


@torch.no_grad()
def barrier(group: dist.ProcessGroup | None = None) -> None:
    """Return on no rank before all ranks have called it: the dissemination barrier.

    In round k every rank signals the rank 2ᵏ further on and waits for the one 2ᵏ behind. After
    ⌈log₂ p⌉ rounds word of every rank has reached every rank, for any p. At most 8 bytes a message
    [Hensgen, Finkel, Manber 1988].
    """
    raise NotImplementedError("a1.barrier")


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
    raise NotImplementedError("a1.all_reduce_pairwise")


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
    raise NotImplementedError("a1.all_reduce_parameter_server")
