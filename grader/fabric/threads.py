"""Ranks as threads of one process, of which exactly one runs at a time.

A rank runs until it has to wait; then the baton goes to the next rank that can run. When none
can, the run is stuck, and that is known at once: no time-out is involved.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Literal

from grader.fabric.engine import Pending
from grader.fabric.findings import SimulationAborted
from grader.fabric.isolation import RankState, adopt

State = Literal["ready", "running", "waiting", "sleeping", "done"]

#: A rank needs little stack of its own; a thousand of them should not need a thousand times 8 MiB.
STACK_BYTES = 4 << 20


class RankThread:
    """One rank: its thread, its baton, what it waits for."""

    __slots__ = ("rank", "state", "baton", "status", "waits_for", "wake_at", "condition", "thread")

    def __init__(self, rank: int, state: RankState) -> None:
        self.rank = rank
        self.state = state
        self.baton = threading.Lock()
        self.baton.acquire()
        self.status: State = "ready"
        self.waits_for: Pending | None = None
        self.wake_at: float | None = None
        self.condition: Callable[[], bool] | None = None
        self.thread: threading.Thread | None = None


class Scheduler:
    """Hands the baton round.

    schedule: `None` runs ready ranks first come, first served; a number picks among them at random
        (and sometimes lets another rank run although it need not), always the same way.
    on_stuck(): called, in the thread of the rank that noticed, when no rank can run.
    """

    def __init__(self, schedule: int | None, on_stuck: Callable[[], None]) -> None:
        self.ranks: list[RankThread] = []
        self.current: RankThread | None = None
        self.sleeper: RankThread | None = None  # of ranks that all sleep, the first to wake
        self.aborted = False
        self.switches = 0  # also the sign of life that the watchdog looks at
        self._ready: deque[RankThread] = deque()
        self._blocked: list[RankThread] = []
        self._random = random.Random(schedule) if schedule is not None else None
        self.is_random = self._random is not None
        self._on_stuck = on_stuck
        self._finished = threading.Event()

    # Running ----------------------------------------------------------------------------------

    def run(
        self,
        ranks: list[RankThread],
        body: Callable[[RankThread], None],
        on_tick: Callable[[], bool],
        tick: float = 0.05,
    ) -> bool:
        """Run body(rank) on every rank. True when all have come to an end.

        on_tick is called every `tick` seconds of host time; it returns False to give up on
        threads that do not answer (they are left behind).
        """
        self.ranks = ranks
        self._ready = deque(ranks)
        with _CheapHandover():
            for rank in ranks:
                rank.thread = threading.Thread(
                    target=self._main, args=(rank, body), name=f"rank {rank.rank}", daemon=True
                )
                rank.thread.start()
        first = self._pick()
        assert first is not None
        with _rare_collections():
            self._hand_to(first)
            while not self._finished.wait(tick):
                if not on_tick():
                    return False
        for rank in ranks:
            assert rank.thread is not None
            rank.thread.join()
        return True

    def _main(self, rank: RankThread, body: Callable[[RankThread], None]) -> None:
        adopt(rank.state)
        rank.baton.acquire()
        rank.state.enter()
        try:
            if not self.aborted:
                body(rank)
        except SimulationAborted:
            pass  # the run has ended; the finding is already noted
        finally:
            rank.state.leave()
            rank.status = "done"
            self._leave(rank)

    def _leave(self, rank: RankThread) -> None:
        following = None if self.aborted else self._pick()
        if following is None and self._unfinished() is not None:
            if not self.aborted:
                self._on_stuck()
                self.abort()
            following = self._unfinished()
        if following is None:
            self._finished.set()
        else:
            self._hand_to(following)

    def abort(self) -> None:
        """End the run: every rank is unwound when it next gets the baton."""
        self.aborted = True

    def _unfinished(self) -> RankThread | None:
        return next((rank for rank in self.ranks if rank.status != "done"), None)

    # Waiting ----------------------------------------------------------------------------------

    def wait_for(self, rank: RankThread, pending: Pending) -> None:
        """Suspend `rank` until `pending` is done."""
        while not pending.done:
            rank.waits_for = pending
            rank.status = "waiting"
            self._suspend(rank)
        rank.waits_for = None

    def on_done(self, pending: Pending) -> None:
        """Make the rank that waits for this operation ready to run."""
        rank = self.ranks[pending.operation.rank]
        if rank.waits_for is pending and rank.status == "waiting":
            rank.status = "ready"
            self._ready.append(rank)

    def wait_until(
        self, rank: RankThread, condition: Callable[[], bool] | None, deadline: float | None
    ) -> bool:
        """Suspend `rank` until condition() holds or the host's clock passes `deadline`.

        True when the condition held. Without a condition this is a sleep.
        """
        while condition is None or not condition():
            if deadline is not None and time.monotonic() >= deadline:
                return condition is None or condition()
            rank.condition, rank.wake_at, rank.status = condition, deadline, "sleeping"
            self._blocked.append(rank)
            self._suspend(rank)
        return True

    def yield_now(self, rank: RankThread) -> None:
        """Let every other rank that can run go first (a rank that polls would starve them)."""
        rank.status = "ready"
        self._ready.append(rank)
        self._suspend(rank)

    def maybe_yield(self, rank: RankThread) -> None:
        """In a random schedule: now and then let another rank run although this one could."""
        if self._random is not None and self._ready and self._random.random() < 0.3:
            self.yield_now(rank)

    # The baton --------------------------------------------------------------------------------

    def _suspend(self, rank: RankThread) -> None:
        following = None if self.aborted else self._pick()
        if following is None:
            if not self.aborted:
                self._on_stuck()
                self.abort()
        elif following is not rank:
            rank.state.leave()
            self._hand_to(following)
            rank.baton.acquire()
            rank.state.enter()
        rank.status = "running"
        self.current = rank
        if self.aborted:
            raise SimulationAborted("the run has ended")

    def _hand_to(self, rank: RankThread) -> None:
        self.switches += 1
        rank.status = "running"
        self.current = rank
        rank.baton.release()

    def _pick(self) -> RankThread | None:
        if self._blocked:
            self._wake()
        if not self._ready:
            return self._sleep()
        if self._random is not None:
            self._ready.rotate(-self._random.randrange(len(self._ready)))
        return self._ready.popleft()

    def _wake(self) -> None:
        now = time.monotonic()
        still: list[RankThread] = []
        for rank in self._blocked:
            due = rank.wake_at is not None and now >= rank.wake_at
            if due or (rank.condition is not None and rank.condition()):
                rank.status = "ready"
                self._ready.append(rank)
            else:
                still.append(rank)
        self._blocked = still

    def _sleep(self) -> RankThread | None:
        """Nobody can run: wait for the first rank whose sleep or time-out ends, if there is one."""
        deadlines = [rank.wake_at for rank in self._blocked if rank.wake_at is not None]
        if not deadlines:
            return None
        self.sleeper = min(self._blocked, key=lambda rank: rank.wake_at or math.inf)
        while not self._ready and not self.aborted:
            time_left = min(deadlines) - time.monotonic()
            if time_left > 0:
                host_sleep(min(time_left, 0.05))
            self._wake()
        self.sleeper = None
        return self._ready.popleft() if self._ready else None


@contextlib.contextmanager
def _rare_collections() -> Iterator[None]:
    """A run makes objects that stay, by the million: to look for garbage every 700 is too often."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], 20_000), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


class _CheapHandover:
    """Threads started inside share one core and do not preempt the thread that wakes them.

    Passing the baton between cores costs some ten times as much; and a thread that runs as soon as
    it is woken, before its waker has let go of the interpreter's lock, is switched to twice. The
    calling thread is as before when the block is left.
    """

    def __enter__(self) -> None:
        self._stack = threading.stack_size(STACK_BYTES)
        self._cores = os.sched_getaffinity(0)
        self._policy = os.sched_getscheduler(0)
        with contextlib.suppress(OSError):  # a container may forbid either: only time is lost
            os.sched_setaffinity(0, {random.SystemRandom().choice(sorted(self._cores))})
            if self._policy == os.SCHED_OTHER:
                os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))

    def __exit__(self, *exc: object) -> None:
        threading.stack_size(self._stack)
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, self._policy, os.sched_getparam(0))
            os.sched_setaffinity(0, self._cores)


host_sleep = time.sleep


def stack_of(rank: RankThread) -> object | None:
    """The Python frame in which the rank's thread is now, for reports."""
    if rank.thread is None or rank.thread.ident is None:
        return None
    return sys._current_frames().get(rank.thread.ident)
