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

# BEGIN SOLUTION
from .ddp import broadcast_from_first, pack_gradients, unpack_gradients

# END SOLUTION


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
        # BEGIN SOLUTION
        size = dist.get_world_size(group)
        if not 0 <= server < size:
            raise ValueError(f"server={server}: expected a rank of the group, 0 to {size - 1}")
        self.module = module
        self._group = group
        self._server = server
        self._workers = [rank for rank in range(size) if rank != server]
        broadcast_from_first([*module.parameters(), *module.buffers()], group)
        kinds: dict[tuple[torch.dtype, torch.device], list[nn.Parameter]] = {}
        for parameter in module.parameters():
            if parameter.requires_grad:
                kinds.setdefault((parameter.dtype, parameter.device), []).append(parameter)
        self._alike = list(kinds.values())
        # END SOLUTION

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """``module(*args, **kwargs)``."""
        # BEGIN SOLUTION
        return self.module(*args, **kwargs)
        # END SOLUTION

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Inside, backward only accumulates, and nothing is sent."""
        # BEGIN SOLUTION
        yield  # backward never sends anything here
        # END SOLUTION

    def finish_gradient_synchronization(self) -> None:
        """Send the gradients to the server, and receive their average.

        To be called on all ranks once per optimizer step, after the last backward.
        """
        # BEGIN SOLUTION
        messages = [pack_gradients(parameters) for parameters in self._alike]
        if dist.get_rank(self._group) == self._server:
            received = [[torch.empty_like(m) for m in messages] for _ in self._workers]
            self._batch(dist.irecv, received)
            for theirs in received:
                for message, other in zip(messages, theirs, strict=True):
                    message.add_(other)
            for message in messages:
                message.div_(len(self._workers) + 1)
            self._batch(dist.isend, [messages] * len(self._workers))
        else:
            self._batch(dist.isend, [messages])
            self._batch(dist.irecv, [messages])
        for message, parameters in zip(messages, self._alike, strict=True):
            unpack_gradients(message, parameters)
        # END SOLUTION

    # BEGIN SOLUTION

    def _batch(self, operation: Any, messages: list[list[torch.Tensor]]) -> None:
        """Send or receive one list of messages per peer, all at once."""
        at_server = dist.get_rank(self._group) == self._server
        peers = self._workers if at_server else [self._server]
        operations = [
            dist.P2POp(operation, message, group=self._group, group_peer=peer)
            for peer, theirs in zip(peers, messages, strict=True)
            for message in theirs
        ]
        if operations:
            for work in dist.batch_isend_irecv(operations):
                work.wait()

    # END SOLUTION
