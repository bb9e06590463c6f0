"""Data parallelism with a replica on every rank and gradients averaged while backward runs.

Every rank sees its own share of the batch; the average of the ranks' gradients is the gradient
of the mean loss over the whole batch, so all replicas take the same step and stay equal. Gradients
travel in buckets: each is sent as soon as backward has filled it, while backward goes on
[Li et al. 2020, "PyTorch Distributed: Experiences on Accelerating Data Parallel Training"].
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn


class DistributedDataParallel(nn.Module):
    """A replica of ``module`` whose gradients are averaged over the group.

        model = DistributedDataParallel(module)
        loss(model(inputs), targets).backward()
        model.finish_gradient_synchronization()
        optimizer.step()

    Called like ``module`` itself. Parameters and buffers start as those of the group's first rank.
    Parameters that no rank's backward reached keep the gradient they have (None, say); one that
    only some ranks reached counts as zero on the others. Shared parameters travel once, frozen
    ones (``requires_grad=False`` at construction) never. Between ``backward`` and
    ``finish_gradient_synchronization`` the gradients are nobody's business.

    Args:
        module: any module; its parameters may differ in dtype. It is used, not copied.
        group: the ranks that average; ``None`` is the default group.
        bucket_bytes: gradients travel in messages of at most that many bytes (a parameter that is
            larger travels alone), and of not much less.

    Raises:
        ValueError: ``bucket_bytes`` is not positive.
    """

    def __init__(
        self,
        module: nn.Module,
        group: dist.ProcessGroup | None = None,
        bucket_bytes: int = 25 << 20,
    ) -> None:
        super().__init__()
        raise NotImplementedError("a3.DistributedDataParallel")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """``module(*args, **kwargs)``."""
        raise NotImplementedError("a3.DistributedDataParallel")

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Inside, backward only accumulates, and nothing is sent.

        The first backward outside averages what has been accumulated, its own share included.
        """
        raise NotImplementedError("a3.DistributedDataParallel")

    def finish_gradient_synchronization(self) -> None:
        """Wait until every gradient is the average over the group.

        To be called on all ranks once per optimizer step, after the last backward.
        """
        raise NotImplementedError("a3.DistributedDataParallel")
