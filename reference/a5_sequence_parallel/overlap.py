"""Matrix products that communicate while they compute.

A layer that is cut waits for its collective: all-gather, then product; product, then
reduce-scatter. Cut into chunks, the collective of one chunk runs beside the product of the next,
and what is left of the communication is one chunk of it [Wang et al. 2023; Chang et al. 2024]:

    serial      ██████████ product   ░░░░░░░░░░ collective
    chunked     ██▓▓▓▓▓▓▓▓░░         product and collective at once

With c chunks, and product and collective taking T each, (1 + 1/c)·T remains of 2·T.
"""

from __future__ import annotations

# BEGIN SOLUTION
from typing import Any

# END SOLUTION
import torch
import torch.distributed as dist

# BEGIN SOLUTION
from .given import share_of

Group = dist.ProcessGroup | None


def _check_product(a: torch.Tensor, b: torch.Tensor) -> None:
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(
            f"a has shape {tuple(a.shape)} and b {tuple(b.shape)}: expected two matrices, and as "
            f"many columns of a as rows of b"
        )


def product_reduce_scattered(
    a: torch.Tensor, b: torch.Tensor, group: Group, chunks: int
) -> torch.Tensor:
    """This rank's rows of the sum over the ranks of a @ b, chunk by chunk."""
    size = dist.get_world_size(group)
    if size == 1:
        return a @ b
    rows = a.shape[0] // size
    by_rank = a.view(size, rows, -1) if a.is_contiguous() else a.reshape(size, rows, -1)
    output = a.new_empty((rows, b.shape[1]))
    works = []
    # A chunk is the same few rows of every rank's share, so its collective is complete in itself.
    for part, own in zip(
        by_rank.tensor_split(min(chunks, max(rows, 1)), dim=1),
        output.tensor_split(min(chunks, max(rows, 1))),
        strict=True,
    ):
        partial = part @ b  # (size, rows of the chunk, N)
        works.append(dist.reduce_scatter(own, list(partial), group=group, async_op=True))
    for work in works:
        work.wait()
    return output


class Ring:
    """Blocks that travel to the next rank, one step ahead of their use.

    ``for owner, block in Ring(tensor, group)`` yields every rank's tensor once, this rank's own
    first; while the loop's body works on one, the next is on its way.
    """

    def __init__(self, tensor: torch.Tensor, group: Group) -> None:
        self.tensor = tensor.contiguous()
        self.group = group

    def __iter__(self) -> Any:
        rank, size = dist.get_rank(self.group), dist.get_world_size(self.group)
        block = self.tensor
        for step in range(size):
            works = []
            if step < size - 1:
                arriving = torch.empty_like(block)
                works = dist.batch_isend_irecv(
                    [
                        dist.P2POp(
                            dist.isend, block, group=self.group, group_peer=(rank + 1) % size
                        ),
                        dist.P2POp(
                            dist.irecv, arriving, group=self.group, group_peer=(rank - 1) % size
                        ),
                    ]
                )
            yield (rank - step) % size, block
            for work in works:
                work.wait()
            if works:
                block = arriving


def gathered_product(a: torch.Tensor, b: torch.Tensor, group: Group) -> torch.Tensor:
    """All ranks' a, one after the other, times this rank's b."""
    size, rows = dist.get_world_size(group), a.shape[0]
    output = a.new_empty((size * rows, b.shape[1]))
    for owner, block in Ring(a, group):
        torch.matmul(block, b, out=output[owner * rows : (owner + 1) * rows])
    return output


class _MatmulReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, a: torch.Tensor, b: torch.Tensor, group: Group, chunks: int
    ) -> torch.Tensor:
        ctx.group = group
        ctx.save_for_backward(a, b)
        return product_reduce_scattered(a, b, group, chunks)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        a, b = ctx.saved_tensors
        rows = gradient.shape[0]
        grad_a, grad_b = torch.empty_like(a), torch.zeros_like(b)
        for owner, block in Ring(gradient, ctx.group):
            own = slice(owner * rows, (owner + 1) * rows)
            grad_a[own] = block @ b.t()
            grad_b += a[own].t() @ block
        return grad_a, grad_b, None, None


class _AllGatherMatmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor, group: Group) -> torch.Tensor:
        ctx.group = group
        ctx.save_for_backward(a, b)
        return gathered_product(a, b, group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        a, b = ctx.saved_tensors
        rows = a.shape[0]
        size = dist.get_world_size(ctx.group)
        grad_a = product_reduce_scattered(gradient, b.t(), ctx.group, size)
        grad_b = torch.zeros_like(b)
        for owner, block in Ring(a, ctx.group):  # gathered again, rather than kept
            grad_b += block.t() @ gradient[owner * rows : (owner + 1) * rows]
        return grad_a, grad_b, None


# END SOLUTION


def matmul_reduce_scatter(
    a: torch.Tensor, b: torch.Tensor, group: dist.ProcessGroup | None = None, chunks: int = 4
) -> torch.Tensor:
    """Product and reduce-scatter at once: a row-parallel layer that ends in its share of the rows.

    Args:
        a: ``(M, K / n)``, floating point: on group rank i of n its columns of the whole (M, K).
        b: ``(K / n, N)``, the matching rows.
        group: the n ranks.
        chunks: in how many parts product and collective are cut; more than there are rows is fine.

    Returns:
        ``(M / n, N)``: this rank's rows of the sum over the ranks of ``a @ b``. Differentiable in
        both arguments.

    Raises:
        ValueError: n does not divide M; the shapes do not fit; ``chunks`` < 1. The message names
            the argument and the numbers.
    """
    # BEGIN SOLUTION
    _check_product(a, b)
    share_of(a.shape[0], "dimension 0 of a", group)
    if chunks < 1:
        raise ValueError(f"chunks={chunks}: expected at least 1")
    return _MatmulReduceScatter.apply(a, b, group, chunks)
    # END SOLUTION


def all_gather_matmul(
    a: torch.Tensor, b: torch.Tensor, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """All-gather and product at once: a column-parallel layer that begins with shares of the rows.

    Args:
        a: ``(M / n, K)``, floating point: this rank's rows of the whole (M, K).
        b: ``(K, N / n)``: this rank's columns of the whole (K, N).
        group: the n ranks.

    Returns:
        ``(M, N / n)``: this rank's columns of the product. Differentiable in both arguments.

    Raises:
        ValueError: the shapes do not fit; the message names them.
    """
    # BEGIN SOLUTION
    _check_product(a, b)
    return _AllGatherMatmul.apply(a, b, group)
    # END SOLUTION
