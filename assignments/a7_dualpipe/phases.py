"""Given: passes through a stage that are cut into phases, computing and communicating in turn.

In DeepSeek-V3 a layer is attention, dispatch of tokens to their experts, the experts, and the way
back [DeepSeek-AI 2024, section 3.2.1, figure 4]: two phases of computation and two of
communication, forward and backward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch
import torch.distributed as dist

from ..a6_pipeline_parallel.stage import PipelineStage

__all__ = ["Exchange", "Phase", "PhasedPass", "PhasedStage"]

Gradients = tuple[torch.Tensor | None, ...]


@dataclass(frozen=True)
class Phase:
    """One phase of a pass.

    kind: "compute" or "communicate". run: does the work; a communicate phase only starts it and
    returns a ``Work`` (or ``None``, if there is nothing to wait for), which is to be waited for
    before the next phase of the same pass begins.
    """

    kind: Literal["compute", "communicate"]
    run: Callable[[], dist.Work | None]


@dataclass
class PhasedPass:
    """The phases of one forward or backward, to be run in order.

    result: what the pass comes to, once all phases have run and all works are waited for.
    """

    phases: Sequence[Phase]
    result: Callable[[], Any] = field(default=lambda: None)

    def run(self) -> Any:
        """Phase by phase, without any overlap; returns the result."""
        for phase in self.phases:
            work = phase.run()
            if phase.kind == "communicate" and work is not None:
                work.wait()
        return self.result()


class Exchange(Protocol):
    """Communication between two parts of a stage, linear in its tensor (an all-to-all, say)."""

    def forward(self, tensor: torch.Tensor) -> tuple[torch.Tensor, dist.Work | None]:
        """Start it. The tensor returned is filled once the work is waited for."""

    def backward(self, gradient: torch.Tensor) -> tuple[torch.Tensor, dist.Work | None]:
        """The same for the gradient, the other way round."""


class PhasedStage:
    """A stage whose parts (modules of one tensor) have exchanges between them.

    Used like `PipelineStage`; in addition its passes can be had in phases, so that those of two
    micro-batches can be run together.

    parts: computation. exchanges: one after each part but the last.
    """

    def __init__(self, parts: Sequence[torch.nn.Module], exchanges: Sequence[Exchange]) -> None:
        if len(exchanges) != len(parts) - 1:
            raise ValueError(f"{len(exchanges)} exchanges between {len(parts)} parts")
        self.module = torch.nn.ModuleList(parts)
        self._parts = [PipelineStage(part) for part in parts]
        self._exchanges = list(exchanges)

    def forward(self, microbatch: int, tensor: torch.Tensor) -> torch.Tensor:
        """As ``PipelineStage.forward``."""
        return self.forward_phases(microbatch, tensor).run()  # type: ignore[no-any-return]

    def backward(self, microbatch: int, gradient: torch.Tensor | None) -> Gradients:
        """As ``PipelineStage.backward``."""
        return self.backward_phases(microbatch, gradient).run()  # type: ignore[no-any-return]

    def backward_input(self, microbatch: int, gradient: torch.Tensor | None) -> Gradients:
        """As ``PipelineStage.backward_input``."""
        return self._backward_pass("backward_input", microbatch, gradient).run()  # type: ignore[no-any-return]

    def backward_weight(self, microbatch: int) -> None:
        """As ``PipelineStage.backward_weight``."""
        for part in self._parts:
            part.backward_weight(microbatch)

    def forward_phases(self, microbatch: int, tensor: torch.Tensor) -> PhasedPass:
        """The forward of one micro-batch; its result is the output."""
        current = [tensor]
        phases: list[Phase] = []

        def compute(part: PipelineStage) -> None:
            output = part.forward(microbatch, current[0])
            assert isinstance(output, torch.Tensor)
            current[0] = output

        def communicate(exchange: Exchange) -> dist.Work | None:
            requires_grad = current[0].requires_grad
            received, work = exchange.forward(current[0].detach())
            current[0] = received.requires_grad_(requires_grad)
            return work

        for place, part in enumerate(self._parts):
            if place:
                exchange = self._exchanges[place - 1]
                phases.append(Phase("communicate", lambda e=exchange: communicate(e)))
            phases.append(Phase("compute", lambda p=part: compute(p)))
        return PhasedPass(phases, lambda: current[0])

    def backward_phases(self, microbatch: int, gradient: torch.Tensor | None) -> PhasedPass:
        """The whole backward of one micro-batch; its result is that of ``backward``."""
        return self._backward_pass("backward", microbatch, gradient)

    def _backward_pass(
        self, name: str, microbatch: int, gradient: torch.Tensor | None
    ) -> PhasedPass:
        current = [gradient]
        phases: list[Phase] = []

        def compute(part: PipelineStage) -> None:
            (current[0],) = getattr(part, name)(microbatch, current[0])

        def communicate(exchange: Exchange) -> dist.Work | None:
            if current[0] is None:
                return None
            current[0], work = exchange.backward(current[0])
            return work

        for place in reversed(range(len(self._parts))):
            phases.append(Phase("compute", lambda p=self._parts[place]: compute(p)))
            if place:
                exchange = self._exchanges[place - 1]
                phases.append(Phase("communicate", lambda e=exchange: communicate(e)))
        return PhasedPass(phases, lambda: (current[0],))
