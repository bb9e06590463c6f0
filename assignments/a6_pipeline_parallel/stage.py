"""One stage of a pipeline: forward, and a backward that can be cut in two.

The gradient of the inputs is what the previous stage waits for; the gradients of the weights
nobody waits for. ZB1P and DualPipe compute the first at once and put the second off [Qi et al.
2023, Zero Bubble Pipeline Parallelism].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge

Tensors = tuple[torch.Tensor, ...]


class PipelineStage:
    """A module, and for every micro-batch that is under way what its backward needs.

    ``module`` is called with the stage's inputs (tensors) and returns a tensor or a tuple or list
    of tensors. It may share weights, return views or its inputs, work in place, use integers, and
    have frozen or no parameters.

    For each micro-batch: ``forward``, then either ``backward``, or ``backward_input`` and some time
    later ``backward_weight``. After ``backward`` or ``backward_weight`` the stage keeps nothing of
    the micro-batch alive. Different micro-batches may be under way at once and end in any order.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        raise NotImplementedError("a6.PipelineStage")

    def forward(self, microbatch: int, *inputs: torch.Tensor) -> torch.Tensor | Tensors:
        """Run the module on one micro-batch and keep what its backward needs.

        Args:
            microbatch: any number that names it.
            inputs: what the module takes. An input that requires a gradient will get one from
                ``backward`` or ``backward_input``; its own history is not looked at.

        Returns:
            What the module returned, detached: a tensor, or a tuple of tensors. Those that a
            gradient flows back from require one.

        Raises:
            ValueError: this micro-batch is still under way.
            TypeError: the module returned something else than tensors.
        """
        raise NotImplementedError("a6.PipelineStage")

    def backward(
        self, microbatch: int, *gradients: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        """Gradients of the inputs and of the parameters, at once.

        Args:
            gradients: one per output, ``None`` where there is none.

        Returns:
            One per input; ``None`` where it required none or none came. Gradients of parameters
            are added to their ``.grad``.

        Raises:
            ValueError: this micro-batch had no forward, has had a backward, or the number of
                gradients is not that of the outputs.
        """
        raise NotImplementedError("a6.PipelineStage")

    def backward_input(
        self, microbatch: int, *gradients: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        """The gradients of the inputs only; no ``.grad`` of a parameter is touched.

        Arguments, result and errors as of ``backward``.
        """
        raise NotImplementedError("a6.PipelineStage")

    def backward_weight(self, microbatch: int) -> None:
        """The gradients of the parameters, added to their ``.grad``.

        What ``backward_input`` has computed on its way is not computed again, but for parameters
        that are used more than once.

        Raises:
            ValueError: this micro-batch has had no ``backward_input``, or has no weight gradient
                left to compute.
        """
        raise NotImplementedError("a6.PipelineStage")
