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

# BEGIN SOLUTION


@torch.no_grad()
def broadcast_from_first(
    tensors: Iterable[torch.Tensor], group: dist.ProcessGroup | None = None
) -> None:
    """Overwrite the tensors, of any dtype, with those of the group's first rank."""
    for tensor in tensors:
        flat = tensor.detach().contiguous().view(-1)
        # As bytes: not every backend moves every dtype.
        dist.broadcast(flat.view(torch.uint8), group=group, group_src=0)
        tensor.detach().copy_(flat.view(tensor.shape))


@torch.no_grad()
def pack_gradients(parameters: Sequence[nn.Parameter]) -> torch.Tensor:
    """All gradients in one vector, and behind them for each parameter 1 if it has a gradient.

    The marks travel with the gradients: where the average of a mark is 0, no rank used the
    parameter, and its gradient must stay None (an optimizer with momentum or weight decay moves a
    parameter whose gradient is zero).
    """
    gradients = [
        parameter.new_zeros(parameter.numel())
        if parameter.grad is None
        else parameter.grad.reshape(-1)
        for parameter in parameters
    ]
    used = [float(parameter.grad is not None) for parameter in parameters]
    return torch.cat([*gradients, gradients[0].new_tensor(used)])


@torch.no_grad()
def unpack_gradients(message: torch.Tensor, parameters: Sequence[nn.Parameter]) -> None:
    """Write the gradients of a vector made by `pack_gradients` back to the parameters."""
    sizes = [parameter.numel() for parameter in parameters]
    *gradients, marks = message.split([*sizes, len(sizes)])
    # To look at the marks is to wait for the GPU: only if this rank has no gradient somewhere.
    complete = all(parameter.grad is not None for parameter in parameters)
    used = [True] * len(sizes) if complete else [mark > 0 for mark in marks.tolist()]
    for parameter, gradient, in_use in zip(parameters, gradients, used, strict=True):
        if not in_use:
            continue
        if parameter.grad is None:
            parameter.grad = torch.empty_like(parameter)
        parameter.grad.copy_(gradient.view(parameter.shape))


class _Bucket:
    """Parameters of one dtype whose gradients travel together, and the message on its way."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = parameters
        self.reset()

    def reset(self) -> None:
        self.missing = set(self.parameters)  # backward has not reached them yet
        self.message: torch.Tensor | None = None
        self.work: dist.Work | None = None

    def launch(self, group: dist.ProcessGroup | None) -> None:
        # Divided before it is added up, so that 16-bit sums do not overflow.
        self.message = pack_gradients(self.parameters).div_(dist.get_world_size(group))
        self.work = dist.all_reduce(self.message, group=group, async_op=True)

    def finish(self) -> None:
        assert self.work is not None and self.message is not None
        self.work.wait()
        unpack_gradients(self.message, self.parameters)
        self.reset()


def _make_buckets(parameters: Iterable[nn.Parameter], bucket_bytes: int) -> list[_Bucket]:
    """Last parameters first, as backward gets to them, in buckets of one dtype and device."""
    buckets = []
    filling: dict[tuple[torch.dtype, torch.device], list[nn.Parameter]] = {}
    nbytes: dict[tuple[torch.dtype, torch.device], int] = {}
    for parameter in reversed(list(parameters)):
        kind = (parameter.dtype, parameter.device)
        size = parameter.numel() * parameter.element_size()
        if kind in filling and nbytes[kind] + size > bucket_bytes:
            buckets.append(_Bucket(filling.pop(kind)))
        if kind not in filling:
            filling[kind], nbytes[kind] = [], 0
        filling[kind].append(parameter)
        nbytes[kind] += size
    return buckets + [_Bucket(rest) for rest in filling.values()]


# END SOLUTION


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
        # BEGIN SOLUTION
        if bucket_bytes < 1:
            raise ValueError(f"bucket_bytes={bucket_bytes}: expected at least 1")
        self.module = module
        self._group = group
        broadcast_from_first([*module.parameters(), *module.buffers()], group)
        trainable = [each for each in module.parameters() if each.requires_grad]
        self._buckets = _make_buckets(trainable, bucket_bytes)
        self._bucket_of = {p: bucket for bucket in self._buckets for p in bucket.parameters}
        self._launched = 0
        self._synchronize = True
        for parameter in trainable:
            parameter.register_post_accumulate_grad_hook(self._on_gradient)
        # END SOLUTION

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """``module(*args, **kwargs)``."""
        # BEGIN SOLUTION
        return self.module(*args, **kwargs)
        # END SOLUTION

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Inside, backward only accumulates, and nothing is sent.

        The first backward outside averages what has been accumulated, its own share included.
        """
        # BEGIN SOLUTION
        before, self._synchronize = self._synchronize, False
        try:
            yield
        finally:
            self._synchronize = before
        # END SOLUTION

    def finish_gradient_synchronization(self) -> None:
        """Wait until every gradient is the average over the group.

        To be called on all ranks once per optimizer step, after the last backward.
        """
        # BEGIN SOLUTION
        # What is left holds parameters that backward never reached on this rank.
        for bucket in self._buckets[self._launched :]:
            bucket.launch(self._group)
        for bucket in self._buckets:
            bucket.finish()
        self._launched = 0
        # END SOLUTION

    # BEGIN SOLUTION

    def _on_gradient(self, parameter: torch.Tensor) -> None:
        """A gradient is complete: send all buckets that are, in the same order on every rank."""
        if not self._synchronize:
            return
        missing = self._bucket_of[parameter].missing
        if parameter not in missing:
            raise RuntimeError(
                "a second backward before finish_gradient_synchronization(): accumulate under "
                "no_sync()"
            )
        missing.remove(parameter)
        while self._launched < len(self._buckets) and not self._buckets[self._launched].missing:
            self._buckets[self._launched].launch(self._group)
            self._launched += 1

    # END SOLUTION
