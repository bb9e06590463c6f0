"""Running a function on every rank of a simulated cluster."""

from __future__ import annotations

import ctypes
import gc
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from grader.fabric.current import being, maybe_runtime
from grader.fabric.diagnosis import deadlock, leftovers, positions
from grader.fabric.engine import Engine, P2PMode
from grader.fabric.findings import Finding, SimulationAborted, at, more_ranks
from grader.fabric.interception import Interception
from grader.fabric.isolation import Isolation, RankState
from grader.fabric.location import (
    LONGEST_NAME,
    clipped,
    traceback_location,
    user_location,
    user_stack,
    user_traceback,
)
from grader.fabric.record import Location, Record
from grader.fabric.runtime import RankRuntime
from grader.fabric.threads import RankThread, Scheduler, stack_of
from grader.fabric.torch_internals import (
    RankWorld,
    WorldByThread,
    install_world,
    release_groups,
    uninstall_world,
)


@dataclass(slots=True)
class RankError:
    """An exception that left a rank's program. traceback holds the user's frames only."""

    rank: int
    type: str
    message: str
    location: Location | None
    traceback: str
    bases: tuple[str, ...] = ()


@dataclass(slots=True)
class SimulationResult:
    """Outcome of `simulate`.

    returns: what each rank's call returned (`None` where it did not).
    errors: exceptions by rank. findings: faults, the one that ended the run first.
    complete: false when ranks were left behind that did not answer.
    """

    returns: list[Any]
    errors: dict[int, RankError]
    findings: list[Finding]
    record: Record
    seconds: float
    complete: bool = True
    warnings: list[Finding] = field(default_factory=list)


class _RareCollection:
    """Let the cyclic garbage collector look less often: a record is large and holds no cycles."""

    def __enter__(self) -> None:
        self._threshold = gc.get_threshold()
        gc.set_threshold(200_000, 50, 100)

    def __exit__(self, *exc: object) -> None:
        gc.set_threshold(*self._threshold)


class _Simulation:
    """One run: its engine, its ranks, what it found."""

    def __init__(
        self,
        world_size: int,
        schedule: int | None,
        p2p: P2PMode,
        allow: frozenset[str] | None,
        compute: bool,
        time_limit: float,
    ) -> None:
        self.scheduler = Scheduler(schedule, self._stuck)
        self.engine = Engine(world_size, self.scheduler.on_done, p2p=p2p, allow=allow)
        self.compute = compute
        self.time_limit = time_limit
        self.findings: list[Finding] = []
        self.errors: dict[int, RankError] = {}
        self.returns: list[Any] = [None] * world_size
        self.world: WorldByThread | None = None
        self.stopped = ""  # where the other ranks stood when one had raised
        self._switches = -1
        self._since = 0.0

    # On a rank --------------------------------------------------------------------------------

    def body(
        self, thread: RankThread, fn: Callable[[int, Any], Any], arg: Any, initialize: bool
    ) -> None:
        """The life of one rank, in its thread."""
        runtime = RankRuntime(
            thread.rank, self.engine, self.scheduler, thread, self.findings.append, self.compute
        )
        assert self.world is not None
        self.world.enter(RankWorld())
        with being(runtime):
            self._live(runtime, fn, arg, initialize)

    def _live(
        self, runtime: RankRuntime, fn: Callable[[int, Any], Any], arg: Any, initialize: bool
    ) -> None:
        rank = runtime.rank
        runtime.start()
        try:
            if initialize:
                runtime.region = False
                dist.init_process_group("sim")
                runtime.region = True
            self.returns[rank] = fn(rank, arg)
        except SimulationAborted:
            raise
        except BaseException as error:
            self._raised(rank, error)
        finally:
            runtime.stop()
            release_groups()

    def _raised(self, rank: int, error: BaseException) -> None:
        message = str(error)
        if isinstance(error, SystemExit):
            message = f"sys.exit({error.code!r}) was called"
        self.errors[rank] = RankError(
            rank,
            type(error).__name__[:LONGEST_NAME],
            clipped(message),
            traceback_location(error.__traceback__),
            user_traceback(error, message),
            tuple(base.__name__[:LONGEST_NAME] for base in type(error).__mro__[1:-1]),
        )

    # The end ----------------------------------------------------------------------------------

    def _stuck(self) -> None:
        threads = self.scheduler.ranks
        if self.errors:
            self.stopped = positions(threads, frozenset(self.errors))
            return
        self.findings.append(deadlock(self.engine, threads))

    def tick(self) -> bool:
        """The watchdog, in the main thread. False to leave the ranks behind."""
        now = time.monotonic()
        if self.scheduler.switches != self._switches:
            self._switches, self._since = self.scheduler.switches, now
            return True
        if now - self._since < self.time_limit:
            return True
        if not self.scheduler.aborted:
            self._no_progress(now - self._since)
            self.scheduler.abort()
            self._interrupt()
            self._since = now - self.time_limit + 1.0  # one second to answer
            return True
        return False

    def _no_progress(self, seconds: float) -> None:
        current = self.scheduler.sleeper or self.scheduler.current
        assert current is not None
        asleep = self.scheduler.sleeper is not None
        doing = "sleeps or waits in the store" if asleep else "has run"
        guess = "" if asleep else " (an endless loop?)"
        frame = stack_of(current)
        location = user_location(frame)  # type: ignore[arg-type]
        stack = user_stack(frame) if frame is not None else ""  # type: ignore[arg-type]
        self.findings.append(
            Finding(
                "no_progress",
                f"rank {current.rank} {doing} for {seconds:.1f} s{at(location)} without "
                f"communicating{guess}.\n{_indent(stack)}\nThe others:\n"
                f"{positions(self.scheduler.ranks, frozenset({current.rank}))}",
                (current.rank,),
                {current.rank: location} if location is not None else {},
            )
        )

    def _interrupt(self) -> None:
        """Raise `SimulationAborted` in the rank that runs, at its next bytecode."""
        current = self.scheduler.current
        if current is not None and current.thread is not None and current.thread.ident:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(current.thread.ident), ctypes.py_object(SimulationAborted)
            )

    def conclude(self, stopped: str) -> None:
        """Add what can only be said at the end."""
        if self.errors and not self.findings:
            self.findings.insert(0, self._exception(stopped))
        elif not self.findings:
            self.engine.settle()
            self.findings.extend(leftovers(self.engine))

    def _exception(self, stopped: str) -> Finding:
        first = next(iter(self.errors.values()))
        same = [e.rank for e in self.errors.values() if e.type == first.type]
        also = [r for r in self.errors if r not in same]
        on = f"rank {first.rank}"
        if len(same) > 1:
            on += f" (and {more_ranks(len(same) - 1)})"
        message = f"{on} raised {first.type}: {first.message}\n{_indent(first.traceback)}"
        if also:
            message += f"\nOther exceptions on ranks {also}."
        if stopped:
            message += f"\nThe others:\n{stopped}"
        return Finding(
            "exception",
            message,
            tuple(self.errors),
            {e.rank: e.location for e in self.errors.values() if e.location is not None},
            details={"type": first.type, "message": first.message},
        )


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def rank_environment(rank: int, world_size: int, base: dict[str, str]) -> dict[str, str]:
    """The variables that a rank sees: those of `base`, and what `torchrun` would set."""
    size, number = str(world_size), str(rank)
    return base | {
        "RANK": number,
        "LOCAL_RANK": number,
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": size,
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_NAME": "default",
        "ROLE_RANK": number,
        "ROLE_WORLD_SIZE": size,
        "TORCHELASTIC_RUN_ID": "simulated",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
    }


def simulate(
    fn: Callable[[int, Any], Any],
    world_size: int,
    args: Sequence[Any] | None = None,
    *,
    seed: int = 0,
    schedule: int | None = None,
    p2p: P2PMode = "gloo",
    compute: bool = False,
    allow: frozenset[str] | set[str] | None = None,
    time_limit: float = 10.0,
    packages: Sequence[str] = (),
    argv: Sequence[str] = ("",),
    environment: Callable[[int], dict[str, str]] | None = None,
    initialize: bool = True,
) -> SimulationResult:
    """Run fn(rank, args[rank]) on `world_size` simulated ranks.

    schedule: `None` runs ranks first come, first served; a number gives another, reproducible
        order. p2p="nccl" starts unbatched point-to-point calls of a group in posting order.
    compute: record FLOPs and bytes of every tensor operation, for a clock.
    allow: kinds of calls the program may make besides point-to-point ones: "collectives",
        "store"; `None` allows all.
    time_limit: seconds of host time that a rank may run between communications.
    packages: top-level packages of which each rank imports its own copy.
    environment(rank): variables on top of what `torchrun` would set.
    initialize: call `init_process_group` before fn does.

    Raises ValueError for a world of no ranks, RuntimeError within a rank of another simulation.
    Faults of fn are in the result, never raised.
    """
    if maybe_runtime() is not None:
        raise RuntimeError("simulate() was called within a rank of a simulated cluster")
    if world_size < 1:
        raise ValueError(f"world_size must be at least 1, got {world_size}")
    if args is not None and len(args) != world_size:
        raise ValueError(f"{len(args)} args for {world_size} ranks")
    simulation = _Simulation(
        world_size,
        schedule,
        p2p,
        frozenset(allow) if allow is not None else None,
        compute,
        time_limit,
    )
    base = dict(os.environ)
    begin = time.perf_counter()
    torch_state = torch.default_generator.get_state()
    threads = []
    for rank in range(world_size):
        extra = environment(rank) if environment is not None else {}
        state = RankState(rank, rank_environment(rank, world_size, base) | extra, argv, seed)
        state.torch_state = torch_state
        threads.append(RankThread(rank, state))

    def body(thread: RankThread) -> None:
        arg = args[thread.rank] if args is not None else None
        simulation.body(thread, fn, arg, initialize)

    world = simulation.world = install_world()
    complete = False
    try:
        with _RareCollection(), Isolation(packages), Interception():
            complete = simulation.scheduler.run(threads, body, simulation.tick)
    finally:
        uninstall_world(world)
    simulation.conclude(simulation.stopped)
    errors = [f for f in simulation.findings if f.severity == "error"]
    return SimulationResult(
        simulation.returns,
        simulation.errors,
        errors,
        simulation.engine.record,
        time.perf_counter() - begin,
        complete,
        [f for f in simulation.findings if f.severity == "warning"],
    )
