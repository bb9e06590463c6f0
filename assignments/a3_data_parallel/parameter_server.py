"""Data parallelism through one server, as before there were ring all-reduces.

Every worker sends its gradients to the server, which averages them and sends the average back
[Li et al. 2014, "Scaling Distributed Machine Learning with the Parameter Server"]. p ranks with n
bytes of gradients: a worker moves n bytes each way whatever p is, the server (p − 1)n.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn


class ParameterServerDataParallel(nn.Module):
    """The training of ``DistributedDataParallel``, with the same interface, through one server.

    Workers exchange messages with the server only, and no gradient before
    ``finish_gradient_synchronization``. Every rank ends with the same averaged gradients and runs
    its own optimizer. Unused, shared and frozen parameters, parameters and buffers at the start:
    all as in ``DistributedDataParallel``.

    Args:
        module: any module; it is used, not copied.
        group: the ranks that average; ``None`` is the default group.
        server: the rank *in the group* that averages for all; it is a worker too.

    Raises:
        ValueError: ``server`` is not a rank of the group.
    """

    def __init__(
        self, module: nn.Module, group: dist.ProcessGroup | None = None, server: int = 0
    ) -> None:
        super().__init__()
        raise NotImplementedError("a3.ParameterServerDataParallel")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """``module(*args, **kwargs)``."""
        raise NotImplementedError("a3.ParameterServerDataParallel")

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Inside, backward only accumulates, and nothing is sent."""
        raise NotImplementedError("a3.ParameterServerDataParallel")

    def finish_gradient_synchronization(self) -> None:
        """Send the gradients to the server, and receive their average.

        To be called on all ranks once per optimizer step, after the last backward.
        """
        raise NotImplementedError("a3.ParameterServerDataParallel")
