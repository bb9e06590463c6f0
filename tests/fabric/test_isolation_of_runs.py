"""Runs leave nothing behind, also those of programs that go wrong."""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from grader.fabric import SimulationResult, simulate
from tests.fabric.ranks import run, same

# What a run leaves behind -------------------------------------------------------------------------


def finishes(rank: int, _: Any) -> None:
    """A program that ends well, after changing what it can."""
    torch.manual_seed(rank + 5)
    random.seed(rank)
    np.random.seed(rank)
    os.environ["LEFT"] = "behind"
    sys.argv = ["changed"]
    sys.excepthook = lambda *args: None
    torch.set_default_dtype(torch.float64)
    tensor = torch.rand(2)
    dist.all_reduce(tensor)


def deadlocks(rank: int, argument: Any) -> None:
    """A program that hangs: everybody receives."""
    finishes(rank, argument)
    dist.recv(torch.empty(1, dtype=torch.float32), 1 - rank)


def raises(rank: int, argument: Any) -> None:
    """A program of which one rank fails while the other waits."""
    finishes(rank, argument)
    if rank == 1:
        raise ValueError("of rank 1")
    dist.barrier()


def exits(rank: int, argument: Any) -> None:
    """A program that calls sys.exit."""
    finishes(rank, argument)
    sys.exit(3)


def loops(rank: int, argument: Any) -> None:
    """A program of which one rank never comes back."""
    finishes(rank, argument)
    while rank == 1:
        pass


@pytest.mark.parametrize(
    ("program", "kind"),
    [
        (finishes, None),
        (deadlocks, "deadlock"),
        (raises, "exception"),
        (exits, "exception"),
        (loops, "no_progress"),
    ],
)
def test_a_run_leaves_nothing_behind(program: Callable[[int, Any], None], kind: str | None) -> None:
    def settings() -> dict[str, Any]:
        return {
            "environment": dict(os.environ),
            "arguments": (sys.argv, list(sys.argv)),
            "hooks": (sys.excepthook, list(sys.meta_path), list(sys.path)),
            "streams": (sys.stdout, sys.stderr),
            "dtype": torch.get_default_dtype(),
            "torch": torch.get_rng_state().tolist(),
            "random": random.getstate(),
            "numpy": np.random.get_state()[1].tolist(),  # type: ignore[index, union-attr]
            "functions": (random.random, np.random.rand, dist.new_group, dist.init_process_group),
            "world": dist.distributed_c10d._world,
            "modes": torch._C._len_torch_dispatch_stack(),
        }

    before, threads = settings(), set(threading.enumerate())
    result = simulate(program, 2, time_limit=0.3)
    assert [finding.kind for finding in result.findings] == ([kind] if kind else [])
    assert result.complete
    assert set(threading.enumerate()) == threads
    assert settings() == before
    assert not dist.is_initialized()


def test_runs_do_not_share_groups_or_stores() -> None:
    def program(rank: int, _: Any) -> int:
        store = dist.distributed_c10d._get_default_store()
        dist.new_group([0])
        return store.add("count", 0)

    run(program, 2)

    def other(rank: int, _: Any) -> int:
        store = dist.distributed_c10d._get_default_store()
        store.add("count", 1)
        dist.barrier()
        return store.add("count", 0)

    assert run(other, 2) == run(other, 2) == [2, 2]


# Programs that go wrong ---------------------------------------------------------------------------


def only_message(result: SimulationResult) -> str:
    """The message of the one finding."""
    assert len(result.findings) == 1
    return result.findings[0].message


def test_sys_exit_is_an_exception_of_its_rank() -> None:
    def program(rank: int, _: Any) -> None:
        if rank == 0:
            sys.exit("no data")
        dist.barrier()

    result = simulate(program, 2)
    assert "rank 0 raised SystemExit: sys.exit('no data') was called" in only_message(result)
    assert "rank 1 waits for its barrier" in only_message(result)


def test_a_side_thread_that_communicates_is_told_so() -> None:
    heard: list[str] = []

    def program(rank: int, _: Any) -> None:
        group = dist.group.WORLD
        pending = dist.all_reduce(torch.ones(1), async_op=True)
        assert pending is not None

        def on_the_side() -> None:
            for call in (
                lambda: dist.all_reduce(torch.ones(1)),
                lambda: dist.all_reduce(torch.ones(1), group=group),
                dist.get_rank,
                pending.wait,
            ):
                with pytest.raises(RuntimeError) as caught:
                    call()
                heard.append(str(caught.value))

        side = threading.Thread(target=on_the_side)
        side.start()
        side.join()
        pending.wait()

    run(program, 2)
    assert len(heard) == 8
    assert all("communicate from the thread that the program started in" in text for text in heard)


def test_a_side_thread_that_only_computes_is_fine() -> None:
    def program(rank: int, _: Any) -> float:
        totals: list[float] = []
        side = threading.Thread(target=lambda: totals.append(torch.ones(5).sum().item()))
        side.start()
        dist.barrier()
        side.join()
        return totals[0]

    assert run(program, 2, compute=True) == [5.0, 5.0]


def test_a_simulation_within_a_rank_is_refused() -> None:
    def program(rank: int, _: Any) -> None:
        with pytest.raises(RuntimeError, match="within a rank"):
            simulate(lambda rank, _: None, 2)
        dist.barrier()

    run(program, 2)
    assert run(lambda rank, _: rank, 2) == [0, 1]


def test_arguments_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="world_size must be at least 1"):
        simulate(lambda rank, _: None, 0)
    with pytest.raises(ValueError, match="1 args for 2 ranks"):
        simulate(lambda rank, _: None, 2, [None])


def test_many_ranks_reduce_round_a_ring() -> None:
    ranks = 256

    def program(rank: int, _: Any) -> torch.Tensor:
        right, left = (rank + 1) % ranks, (rank - 1) % ranks
        total = torch.tensor([rank, 1])
        if rank > 0:
            received = torch.empty_like(total)
            dist.recv(received, left)
            total += received
        if rank < ranks - 1:
            dist.send(total, right)
            dist.recv(total, right)
        if rank > 0:
            dist.send(total, left)
        return total

    for total in run(program, ranks):
        same(total, torch.tensor([ranks * (ranks - 1) // 2, ranks]))


def test_a_thousand_levels_of_recursion_fit_a_ranks_stack() -> None:
    def depth(n: int) -> int:
        return 0 if n == 0 else 1 + depth(n - 1)

    assert run(lambda rank, _: depth(900), 2) == [900, 900]
