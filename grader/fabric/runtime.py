"""One rank of the simulated cluster: between what its program calls and the engine.

Here the rank's tensors are looked at and kept: snapshots of what it sends, poison in what it
receives until it has waited, and what of its memory is in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from grader.fabric.buffers import bits, dense_reduction, dtype_name, poison
from grader.fabric.collectives import CollectiveCall
from grader.fabric.counting import Count
from grader.fabric.engine import Engine, Pending
from grader.fabric.findings import Finding, FindingRaised, SimulationAborted, at
from grader.fabric.location import called_by_user, user_location
from grader.fabric.monitor import InFlight, Monitor
from grader.fabric.record import Event, Location, Operation
from grader.fabric.threads import RankThread, Scheduler
from grader.fabric.torch_internals import (
    BelowAutograd,
    NoDispatch,
    pop_mode_if_top,
    push_mode,
)
from grader.fabric.words import describe

if TYPE_CHECKING:
    from grader.fabric.store import SimStore

Tensors = Sequence[torch.Tensor]

NOT_A_RANK = (
    "this thread is no rank of the simulated cluster: communicate from the thread that the program "
    "started in"
)


class RankRuntime:
    """What a rank's process groups and works share.

    region: whether the calls made now are the program's own (and are counted), or a grader's.
    """

    def __init__(
        self,
        rank: int,
        engine: Engine,
        scheduler: Scheduler,
        thread: RankThread,
        report: Callable[[Finding], None],
        compute: bool,
    ) -> None:
        self.rank = rank
        self.engine = engine
        self.scheduler = scheduler
        self.thread = thread
        self._ident = -1
        self.region = True
        self.store: SimStore | None = None  # the rank's view of the run's store, once asked for
        self.batch = -1
        self.batch_location: Location | None = None
        self._report = report
        self._in_flight = InFlight()
        self._unseen = InFlight()
        self._unseen_writes: dict[int, tuple[Pending, Tensors]] = {}
        self._compute = compute
        self._monitor = Monitor(
            self._in_flight,
            self._on_conflict,
            self._on_compute if compute else None,
            self._unseen,
            self._on_seen,
        )
        self._monitored = False
        self._buffers: dict[int, tuple[Tensors, Tensors]] = {}

    # Life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Called in the rank's thread before the program."""
        self._ident = get_ident()
        torch.autograd.set_multithreading_enabled(False)
        if self._compute:
            self._watch()

    def stop(self) -> None:
        """Called in the rank's thread after the program."""
        self._compute = False
        for pending, _ in list(self._unseen_writes.values()):
            self._on_seen(pending.operation)
        self._in_flight.by_storage.clear()
        self._unwatch()

    def fail(self, finding: Finding) -> NoReturn:
        """Note a fault that ends the run, and unwind."""
        self._report(finding)
        self.scheduler.abort()
        raise SimulationAborted(finding.message)

    def _watch(self) -> None:
        if not self._monitored:
            push_mode(self._monitor)
            self._monitored = True

    def _unwatch(self) -> None:
        idle = not self._compute and not self._in_flight.by_storage
        if self._monitored and idle and pop_mode_if_top(self._monitor):
            self._monitored = False

    def _on_conflict(self, operation: Operation, is_send: bool, write: bool) -> None:
        here = user_location()
        if is_send:
            kind, what = "send_buffer_changed", "changed a buffer that it is still sending"
        elif write:
            kind, what = "receive_buffer_read", "wrote into a buffer that is still being received"
        else:
            kind, what = "receive_buffer_read", "read a buffer that is still being received"
        if operation.kind not in ("send", "recv"):
            what = f"used a tensor of a {operation.kind} that is still in flight"
        message = (
            f"rank {self.rank} {what}{at(here)}: the {describe(operation)}, posted"
            f"{at(operation.location)}, has not been waited for. Call wait() first."
        )
        locations = {self.rank: here} if here is not None else {}
        self.fail(Finding(kind, message, (self.rank,), locations))

    def _on_seen(self, operation: Operation) -> None:
        pending, writes = self._unseen_writes.pop(operation.id)
        for tensor in writes:
            self._unseen.remove(operation, tensor)
        self.engine.waiting(pending, self.region)

    def note_compute(self, count: Count) -> None:
        """Computation that no operation shows: of a program that is timed, else of no interest."""
        if self._compute:
            self._on_compute(count)

    def _on_compute(self, count: Count) -> None:
        self.engine.record.events[self.rank].append(
            Event("compute", -1, count.flops, count.nbytes, user_location(), self.region)
        )

    # Posting ----------------------------------------------------------------------------------

    def send(self, tensor: torch.Tensor, group: int, peer: int, tag: int) -> Pending:
        """Post a send of `tensor` to global rank `peer`."""
        operation = self._operation("send", group, peer, (tensor,), tag)
        with NoDispatch(), BelowAutograd():
            self._check(operation, reads=(tensor,), writes=())
            payload = tensor if tensor.is_meta else tensor.clone()
            pending = self._try(self.engine.post_send, operation, payload)
        return self._posted(pending, (tensor,), ())

    def receive(self, tensor: torch.Tensor, group: int, peer: int, tag: int) -> Pending:
        """Post a receive into `tensor` from global rank `peer`, or from any rank if -1."""
        operation = self._operation("recv", group, peer, (tensor,), tag)
        with NoDispatch(), BelowAutograd():
            self._check(operation, reads=(), writes=(tensor,))
            poison(tensor)
            pending = self._try(self.engine.post_receive, operation)
        return self._posted(pending, (), (tensor,))

    def collective(
        self,
        call: CollectiveCall,
        group: int,
        root: int,
        reads: Tensors,
        writes: Tensors,
        *,
        asynchronous: bool,
        splits: Sequence[int] = (),
    ) -> Pending:
        """Post a collective that reads `reads` and fills `writes`; root is a global rank or -1."""
        operation = self._operation(call.kind, group, root, reads or writes, 0)
        operation.nbytes = sum(t.numel() * t.element_size() for t in reads)
        operation.splits = tuple(splits)
        if self.region and self.engine.allow is not None:
            if "collectives" not in self.engine.allow:
                self._forbidden(operation)
        with NoDispatch(), BelowAutograd():
            self._check(operation, reads, writes)
            if asynchronous:
                for tensor in writes:
                    poison(tensor)
            pending = self._try(self.engine.post_collective, operation, call)
            pending.by_torch = asynchronous and not called_by_user()
        return self._posted(pending, reads, writes)

    def begin_batch(self) -> None:
        """What is posted from now on starts together, at `end_batch`, and stands at this line."""
        if self.batch < 0:
            self.batch = self.engine.new_batch()
            self.batch_location = user_location()

    def end_batch(self) -> None:
        """The batch is complete."""
        self.batch = -1
        self.engine.end_batch(self.rank)

    def check_thread(self) -> None:
        """RuntimeError when a thread other than the rank's own communicates for it."""
        if get_ident() != self._ident:
            raise RuntimeError(NOT_A_RANK)

    def _operation(self, kind: str, group: int, peer: int, tensors: Tensors, tag: int) -> Operation:
        self.check_thread()
        if self.scheduler.aborted:
            raise SimulationAborted("the run has ended")
        location = self.batch_location if self.batch >= 0 else user_location()
        if not tensors:
            return Operation(
                -1, self.rank, kind, group, peer, 0, (), "", "cpu", tag, self.batch, -1, location
            )
        first = tensors[0]
        return Operation(
            -1,
            self.rank,
            kind,
            group,
            peer,
            first.nbytes,
            tuple(first.shape),
            dtype_name(first.dtype),
            "cpu" if first.is_cpu else first.device.type,
            tag,
            self.batch,
            -1,
            location,
        )

    def _try(self, post: Callable[..., Pending], *args: Any) -> Pending:
        try:
            return post(*args)
        except FindingRaised as raised:
            self.fail(raised.finding)

    def _posted(self, pending: Pending, reads: Tensors, writes: Tensors) -> Pending:
        operation = pending.operation
        self.engine.posted(operation, self.region)
        for tensor in writes:
            self._in_flight.add(tensor, operation, is_send=False)
        for tensor in reads:
            if not writes or not any(tensor is written for written in writes):
                self._in_flight.add(tensor, operation, is_send=True)
        self._buffers[operation.id] = (reads, writes)
        if not self._monitored:
            self._watch()
        if self.scheduler.is_random:
            self.scheduler.maybe_yield(self.thread)
        return pending

    # Checks of what is handed in --------------------------------------------------------------

    def _forbidden(self, operation: Operation) -> None:
        self.fail(
            Finding(
                "forbidden_call",
                f"rank {self.rank} called {operation.kind}{at(operation.location)}, which this "
                f"task forbids: it is to be built from point-to-point calls (send, recv, isend, "
                f"irecv, batch_isend_irecv).",
                (self.rank,),
                _locations(self.rank, operation.location),
                details={"call": operation.kind},
            )
        )

    def _check(self, operation: Operation, reads: Tensors, writes: Tensors) -> None:
        handed = (*reads, *writes)
        for tensor in handed:
            if not tensor.is_contiguous() and not dense_reduction(operation, tensor):
                self.fail(
                    Finding(
                        "non_contiguous",
                        f"rank {self.rank} hands a tensor that is not contiguous (shape "
                        f"{tuple(tensor.shape)}, strides {tensor.stride()}) to {operation.kind}"
                        f"{at(operation.location)}. A real backend refuses it or moves the wrong "
                        f"elements; use .contiguous() and copy the result back.",
                        (self.rank,),
                        _locations(self.rank, operation.location),
                    )
                )
        for tensor in handed if self._unseen.by_storage else ():
            while (touched := self._unseen.conflict(tensor, write=True)) is not None:
                self._on_seen(touched[0])
        if not self._in_flight.by_storage:
            return
        for tensors, write in ((reads, False), (writes, True)):
            for tensor in tensors:
                hit = self._in_flight.conflict(tensor, write)
                if hit is not None:
                    other = hit[0]
                    self.fail(
                        Finding(
                            "buffers_overlap",
                            f"rank {self.rank} hands memory to a {describe(operation)}"
                            f"{at(operation.location)} that is in use by its "
                            f"{describe(other)}, posted{at(other.location)} and not yet waited "
                            f"for. Use another buffer, or wait() first.",
                            (self.rank,),
                            _locations(self.rank, operation.location),
                        )
                    )

    # Waiting ----------------------------------------------------------------------------------

    def wait(self, pending: Pending) -> None:
        """Suspend the rank until `pending` is done, then hand over what it brought."""
        if pending.waited:
            return
        self.check_thread()
        self.engine.waiting(pending, self.region)
        self._take(pending)

    def settle(self, pending: Pending) -> None:
        """As `wait`, for native code that holds a future: it waits where it will, out of our sight.

        In a run that is timed the rank's program notes the wait at the first operation that
        touches the result, which is where it matters.
        """
        if pending.waited:
            return
        if not self._compute:
            self.wait(pending)
            return
        self.check_thread()
        _, writes = self._buffers[pending.operation.id]
        self._take(pending)
        self._unseen_writes[pending.operation.id] = (pending, writes)
        for tensor in writes:
            self._unseen.add(tensor, pending.operation, is_send=False)

    def _take(self, pending: Pending) -> None:
        if not pending.done:
            self.scheduler.wait_for(self.thread, pending)
        elif self.scheduler.aborted:
            raise SimulationAborted("the run has ended")
        operation = pending.operation
        reads, writes = self._buffers.pop(operation.id)
        with NoDispatch(), BelowAutograd():
            for tensor in (*reads, *writes):
                self._in_flight.remove(operation, tensor)
            if not self._in_flight.by_storage:
                self._unwatch()
            if pending.payload is not None:
                self._compare(operation, pending.payload, reads[0])
            elif pending.result is not None:
                _fill(writes[0], pending.result)
            elif pending.call is not None:
                for target, result in zip(writes, pending.call.outputs, strict=False):
                    _fill(target, result)
        self.engine.completed(pending)

    def poll(self, pending: Pending) -> bool:
        """Whether `pending` is done; others run first, since a rank that polls must let them."""
        self.check_thread()
        pending.operation.order_dependent = self.engine.record.order_dependent = True
        if not pending.done:
            self.scheduler.yield_now(self.thread)
        if pending.done:
            self.wait(pending)
        return pending.done

    def _compare(self, operation: Operation, sent: torch.Tensor, now: torch.Tensor) -> None:
        if sent.is_meta or sent.numel() == 0:
            return
        if torch.equal(sent, now) or torch.equal(bits(sent), bits(now)):
            return
        different = (bits(sent) != bits(now)).nonzero()
        index = int(different[0].item()) // max(1, sent.element_size())
        self.fail(
            Finding(
                "send_buffer_changed",
                f"rank {self.rank} changed the buffer of its {describe(operation)}, posted"
                f"{at(operation.location)}, before wait() (element {index} of the message): what "
                f"arrives on a real machine is not defined.",
                (self.rank,),
                _locations(self.rank, operation.location),
            )
        )


def _fill(target: torch.Tensor, result: torch.Tensor) -> None:
    if not target.is_meta:
        same = target.shape == result.shape
        target.copy_(result if same else result.reshape(target.shape))


def _locations(rank: int, location: Location | None) -> dict[int, Location]:
    return {rank: location} if location is not None else {}
