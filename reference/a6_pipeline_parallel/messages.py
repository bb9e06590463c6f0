"""The messages of a schedule: which there are, in which order, and how they get there.

Room for helpers of `executor.py`. Nothing in this file is asked for or graded by itself.
"""

from __future__ import annotations

# BEGIN SOLUTION
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist

from .schedule import Schedule, actions_of, count_chunks
from .timeline import time_schedule
from .wire import Signature, make_room, receive_header, send_header

Tensors = tuple[torch.Tensor, ...]


class Message(NamedTuple):
    """The result of an action that is needed on another rank.

    kind: "F", the outputs of ``stage``; "B", the gradients of its inputs.
    """

    kind: str
    stage: int
    microbatch: int
    source: int
    destination: int


def messages_in_order(schedule: Schedule) -> list[Message]:
    """All messages, in one order that everybody can follow: that of their making on paper.

    Whoever waits for a message, or for its receiver, waits for something that needs earlier
    messages only. By induction all of them arrive, even where every rank carries out its sends and
    receives strictly one after the other.
    """
    last = count_chunks(schedule)[0] - 1
    homes = {
        (stage, microbatch): rank
        for rank, steps in enumerate(schedule)
        for step in steps
        for _, stage, microbatch in actions_of(step)
    }
    ends = time_schedule(schedule).end
    made: list[tuple[float, Message]] = []
    for rank, steps in enumerate(schedule):
        for step, end in zip(steps, ends[rank], strict=True):
            for kind, stage, microbatch in actions_of(step):
                forward = kind == "F"
                if kind == "W" or stage == (last if forward else 0):
                    continue
                other = homes[stage + 1 if forward else stage - 1, microbatch]
                if other != rank:
                    name = "F" if forward else "B"
                    made.append((end, Message(name, stage, microbatch, rank, other)))
    return [message for _, message in sorted(made)]


class Channel:
    """What both ends know of the outputs of one stage that go from one rank to another.

    Micro-batches whose inputs look alike are of one class (named after its first member) and have
    outputs that look alike, so that a header travels once for each class.
    """

    def __init__(self, microbatches: int) -> None:
        self.classes = [-1] * microbatches
        self._signatures: dict[int, Signature] = {}

    def signature(self, microbatch: int) -> Signature | None:
        """What the outputs look like; ``None``: a header must go first."""
        return self._signatures.get(self.classes[microbatch])

    def learn(self, classes: Sequence[int], microbatch: int, signature: Signature) -> None:
        """A header went, for this micro-batch."""
        self.classes = list(classes)
        self._signatures[self.classes[microbatch]] = signature


class Mail:
    """This rank's sends and receives, posted in the common order.

    Receives are posted early: all that come before this rank's next send in the order.
    """

    # Sends that may be unfinished. Waiting for the oldest is safe, see `messages_in_order`.
    WINDOW = 4

    def __init__(self, schedule: Schedule, rank: int, group: dist.ProcessGroup | None) -> None:
        _, microbatches = count_chunks(schedule)
        self._group, self._rank = group, rank
        self._queue = [m for m in messages_in_order(schedule) if rank in (m.source, m.destination)]
        self._place = {message[:3]: place for place, message in enumerate(self._queue)}
        self._posted = 0  # messages of the queue
        self._arriving: dict[int, tuple[Tensors, list[dist.Work]]] = {}
        self._leaving: deque[list[tuple[torch.Tensor, dist.Work]]] = deque()
        self._channels: dict[tuple[int, int, int], Channel] = {}
        self._microbatches = microbatches
        # Of the inputs that each micro-batch began with, as far as this rank has heard.
        self.classes = [-1] * microbatches
        # What this rank's outputs look like: so will their gradients.
        self.outputs: dict[tuple[int, int], Signature] = {}

    def is_local(self, kind: str, stage: int, microbatch: int) -> bool:
        """Whether a result is made and needed on this rank."""
        return (kind, stage, microbatch) not in self._place

    def send(self, kind: str, stage: int, microbatch: int, tensors: Sequence[torch.Tensor]) -> None:
        """Post a send, after the receives that come before it in the order."""
        place = self._place[kind, stage, microbatch]
        self._post_receives(place, patient=True)
        message, works = self._queue[place], []
        if kind == "F":
            channel = self._channel(message)
            if channel.signature(microbatch) is None:
                signature = self.outputs[stage, microbatch]
                works += send_header(signature, self.classes, self._group, message.destination)
                channel.learn(self.classes, microbatch, signature)
        for tensor in tensors:
            if tensor.numel():
                buffer = tensor.detach().contiguous()
                work = dist.isend(buffer, group=self._group, group_dst=message.destination)
                works.append((buffer, work))
        self._posted = place + 1
        self._leaving.append(works)
        self._post_receives(len(self._queue), patient=False)
        while len(self._leaving) > self.WINDOW:
            self._wait_for_send()

    def receive(self, kind: str, stage: int, microbatch: int) -> Tensors:
        """Wait for a result of another rank: outputs, or the gradients that outputs require."""
        place = self._place[kind, stage, microbatch]
        self._post_receives(place + 1, patient=True)
        tensors, works = self._arriving.pop(place)
        for work in works:
            work.wait()
        return tensors

    def close(self) -> None:
        """Wait until everything has left."""
        while self._leaving:
            self._wait_for_send()

    def _wait_for_send(self) -> None:
        for _, work in self._leaving.popleft():
            work.wait()

    def _post_receives(self, end: int, patient: bool) -> None:
        """Post receives up to place ``end`` or the next send; ``patient``: wait for headers too."""
        while self._posted < end:
            message = self._queue[self._posted]
            if message.source == self._rank:
                return
            kind, stage, microbatch = message[:3]
            if kind == "B":
                signature = tuple(s for s in self.outputs[stage - 1, microbatch] if s.requires_grad)
            else:
                channel = self._channel(message)
                known = channel.signature(microbatch)
                if known is None:
                    if not patient:
                        return
                    known, classes = receive_header(self._group, message.source)
                    channel.learn(classes, microbatch, known)
                    heard = zip(self.classes, classes, strict=True)
                    self.classes = [max(mine, theirs) for mine, theirs in heard]
                signature = known
            tensors = tuple(map(make_room, signature))
            works = [
                dist.irecv(tensor, group=self._group, group_src=message.source)
                for tensor in tensors
                if tensor.numel()
            ]
            if kind == "F":
                for tensor, spec in zip(tensors, signature, strict=True):
                    tensor.requires_grad_(spec.requires_grad)
            self._arriving[self._posted] = tensors, works
            self._posted += 1

    def _channel(self, message: Message) -> Channel:
        key = (message.source, message.destination, message.stage)
        return self._channels.setdefault(key, Channel(self._microbatches))


# END SOLUTION
