"""Matrix products that communicate while they compute.

A layer that is cut waits for its collective: all-gather, then product; product, then
reduce-scatter. Cut into chunks, the collective of one chunk runs beside the product of the next,
and what is left of the communication is one chunk of it [Wang et al. 2023; Chang et al. 2024]:

    serial      ██████████ product   ░░░░░░░░░░ collective
    chunked     ██▓▓▓▓▓▓▓▓░░         product and collective at once

With c chunks, and product and collective taking T each, (1 + 1/c)·T remains of 2·T.
"""

from __future__ import annotations

import torch
import torch.distributed as dist


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
    raise NotImplementedError("a5.matmul_reduce_scatter")


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
    raise NotImplementedError("a5.all_gather_matmul")
