"""Running a schedule on real ranks.

A schedule says what each rank does in which order, not who talks to whom when. Two things can go
wrong there. Sends wait for their receivers, so a rank that insists on sending while its neighbour
insists on sending too waits for ever. And messages have no names: the n-th message from a to b
fills the n-th receive that b posted for a, whatever the two were meant to be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

# BEGIN SOLUTION
from .messages import Mail

# END SOLUTION
from .schedule import Overlapped, Schedule, actions_of, count_chunks
from .stage import PipelineStage
from .timeline import validate
from .wire import Signature, make_room, signature_of

Tensors = tuple[torch.Tensor, ...]
Gradients = tuple[torch.Tensor | None, ...]
#: Runs the halves of a pair (F and B): (stage, micro-batch, inputs) of the forward, (stage,
#: micro-batch, gradients) of the backward -> (outputs, gradients of the inputs).
RunPair = Callable[
    [tuple[PipelineStage, int, Tensors], tuple[PipelineStage, int, Gradients]],
    tuple[torch.Tensor | Tensors, Gradients],
]


def run_schedule(
    schedule: Schedule,
    stages: Mapping[int, PipelineStage],
    inputs: Sequence[torch.Tensor | Tensors | None] | None,
    targets: Sequence[Any] | None,
    loss_fn: Callable[[Any, Any], torch.Tensor],
    group: dist.ProcessGroup | None = None,
    run_pair: RunPair | None = None,
) -> torch.Tensor | None:
    """Run one batch through a pipeline: forwards, losses, backwards, as the schedule says.

    Gradients are added to the parameters' ``.grad``: those of the mean over all micro-batches of
    ``loss_fn(output of the last stage, target)``. Any valid schedule runs, also where sends wait
    for their receivers and messages have no tags.

    Args:
        schedule: the whole schedule, the same on all ranks; list r is of group rank r.
        stages: this rank's stages, by number.
        inputs: on ranks that run the first stage, one tensor (or a tuple of tensors) per
            micro-batch; entries that enter elsewhere, and other ranks' ``inputs``, may be ``None``.
        targets: on ranks that run the last stage, one per micro-batch; otherwise as ``inputs``.
        loss_fn: (output, target) -> scalar.
        group: the ranks of the pipeline; ``None`` is the default group.
        run_pair: runs the two halves of an ``Overlapped`` step together; default: one by one.

    Returns:
        The mean loss over the micro-batches whose last stage is here (detached), else ``None``.

    Raises:
        ValueError: the schedule is not valid, or for another number of ranks; a stage, an input or
            a target that this rank needs is missing.
    """
    # BEGIN SOLUTION
    size = dist.get_world_size(group)
    if len(schedule) != size:
        raise ValueError(f"schedule: it is for {len(schedule)} ranks, the group has {size}")
    validate(schedule)
    return _Run(schedule, stages, inputs, targets, loss_fn, group, run_pair).run()
    # END SOLUTION


# BEGIN SOLUTION
class _Run:
    """One batch on one rank."""

    def __init__(
        self,
        schedule: Schedule,
        stages: Mapping[int, PipelineStage],
        inputs: Sequence[torch.Tensor | Tensors | None] | None,
        targets: Sequence[Any] | None,
        loss_fn: Callable[[Any, Any], torch.Tensor],
        group: dist.ProcessGroup | None,
        run_pair: RunPair | None,
    ) -> None:
        rank = dist.get_rank(group)
        self._steps, self._stages = schedule[rank], stages
        count, self._microbatches = count_chunks(schedule)
        self._last = count - 1
        self._inputs, self._targets, self._loss_fn = inputs, targets, loss_fn
        self._run_pair = run_pair
        self._check(rank)
        self._mail = Mail(schedule, rank, group)
        self._classify_inputs()
        self._made: dict[tuple[str, int, int], tuple[torch.Tensor | None, ...]] = {}  # for here
        self._arrived: dict[tuple[int, int], Signature] = {}  # what inputs looked like
        self._losses: dict[int, torch.Tensor] = {}  # with their graphs, until the backward
        self._outputs: dict[int, Tensors] = {}  # of the last stage, likewise
        self._total: torch.Tensor | None = None
        self._counted = 0

    def run(self) -> torch.Tensor | None:
        for step in self._steps:
            if isinstance(step, Overlapped):
                self._pair(step)
                continue
            kind, stage, microbatch = step
            if kind == "F":
                inputs = self._take_inputs(stage, microbatch)
                outputs = self._stages[stage].forward(microbatch, *inputs)
                self._hand_on(stage, microbatch, outputs)
            elif kind == "W":
                self._stages[stage].backward_weight(microbatch)
            else:
                gradients = self._take_gradients(stage, microbatch)
                self._hand_back(
                    stage, microbatch, self._backward(kind, stage, microbatch, gradients)
                )
        self._mail.close()
        return None if self._total is None else self._total / self._counted

    def _pair(self, step: Overlapped) -> None:
        """Both inputs at its start, both results at its end."""
        _, stage, microbatch = step.forward
        kind, back, other = step.backward
        inputs = self._take_inputs(stage, microbatch)
        gradients = self._take_gradients(back, other)
        if self._run_pair is not None and kind == "B":
            outputs, found = self._run_pair(
                (self._stages[stage], microbatch, inputs), (self._stages[back], other, gradients)
            )
        else:
            outputs = self._stages[stage].forward(microbatch, *inputs)
            found = self._backward(kind, back, other, gradients)
        # In the order in which the others expect the two: see `messages_in_order`.
        self._hand_back(back, other, found)
        self._hand_on(stage, microbatch, outputs)

    def _backward(self, kind: str, stage: int, microbatch: int, gradients: Gradients) -> Gradients:
        run = self._stages[stage]
        return (run.backward if kind == "B" else run.backward_input)(microbatch, *gradients)

    # What goes in and out -----------------------------------------------------------------------

    def _take_inputs(self, stage: int, microbatch: int) -> Tensors:
        if stage == 0:
            return self._inputs_of(microbatch)
        if self._mail.is_local("F", stage - 1, microbatch):
            return self._made.pop(("F", stage - 1, microbatch))
        inputs = self._mail.receive("F", stage - 1, microbatch)
        self._arrived[stage, microbatch] = signature_of(inputs)
        return inputs

    def _hand_on(self, stage: int, microbatch: int, outputs: torch.Tensor | Tensors) -> None:
        tensors = outputs if isinstance(outputs, tuple) else (outputs,)
        self._mail.outputs[stage, microbatch] = signature_of(tensors)
        if stage == self._last:
            with torch.enable_grad():
                loss = self._loss_fn(outputs, self._targets[microbatch])
            self._losses[microbatch], self._outputs[microbatch] = loss, tensors
            self._total = loss.detach() if self._total is None else self._total + loss.detach()
            self._counted += 1
        elif self._mail.is_local("F", stage, microbatch):
            self._made["F", stage, microbatch] = tensors
        else:
            self._mail.send("F", stage, microbatch, tensors)

    def _take_gradients(self, stage: int, microbatch: int) -> Gradients:
        """One per output of the stage, ``None`` for those that require none."""
        signature = self._mail.outputs[stage, microbatch]
        if stage == self._last:
            loss = self._losses.pop(microbatch)
            if loss.requires_grad:
                (loss / self._microbatches).backward()
            found = tuple(output.grad for output in self._outputs.pop(microbatch))
        elif self._mail.is_local("B", stage + 1, microbatch):
            found = self._made.pop(("B", stage + 1, microbatch))
        else:
            arrived = iter(self._mail.receive("B", stage + 1, microbatch))
            found = tuple(next(arrived) if spec.requires_grad else None for spec in signature)
        del self._mail.outputs[stage, microbatch]
        return found

    def _hand_back(self, stage: int, microbatch: int, gradients: Gradients) -> None:
        if stage == 0:
            for tensor, gradient in zip(self._inputs_of(microbatch), gradients, strict=True):
                if gradient is not None:
                    torch.autograd.backward(tensor, gradient)
        elif self._mail.is_local("B", stage, microbatch):
            self._made["B", stage, microbatch] = gradients
        else:
            # Those that the other side waits for; a gradient that nothing flowed into is zero.
            signature = self._arrived.pop((stage, microbatch))
            pairs = [p for p in zip(signature, gradients, strict=True) if p[0].requires_grad]
            sent = [make_room(spec).zero_() if g is None else g for spec, g in pairs]
            self._mail.send("B", stage, microbatch, sent)

    # Arguments ----------------------------------------------------------------------------------

    def _inputs_of(self, microbatch: int) -> Tensors:
        given = self._inputs[microbatch]
        return tuple(given) if isinstance(given, (tuple, list)) else (given,)

    def _classify_inputs(self) -> None:
        """Number the micro-batches that enter here by what their inputs look like."""
        seen: dict[Signature, int] = {}
        for action in (a for step in self._steps for a in actions_of(step)):
            if action.kind == "F" and action.stage == 0:
                signature = signature_of(self._inputs_of(action.microbatch))
                number = seen.setdefault(signature, action.microbatch)
                self._mail.classes[action.microbatch] = number

    def _check(self, rank: int) -> None:
        for action in (a for step in self._steps for a in actions_of(step)):
            if action.stage not in self._stages:
                raise ValueError(
                    f"stages: rank {rank} is to run stage {action.stage}, but has only "
                    f"{sorted(self._stages)}"
                )
            for name, values, stage in (
                ("inputs", self._inputs, 0),
                ("targets", self._targets, self._last),
            ):
                if action.kind != "F" or action.stage != stage:
                    continue
                if values is None or len(values) != self._microbatches:
                    found = "None" if values is None else f"{len(values)} entries"
                    raise ValueError(
                        f"{name}: rank {rank} runs stage {stage} and needs one entry for each of "
                        f"{self._microbatches} micro-batches, got {found}"
                    )
                if values[action.microbatch] is None:
                    raise ValueError(
                        f"{name}[{action.microbatch}]: rank {rank} runs stage {stage} of this "
                        f"micro-batch and needs it, got None"
                    )


# END SOLUTION
