"""Exceptions, endless loops, and orders of the ranks."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist

from tests.fabric.programs import assert_clean, line_of, run, the_finding

# Exceptions and endless loops -----------------------------------------------------------------


def test_an_exception_is_shown_first_with_the_positions_of_the_others() -> None:
    finding = the_finding(_raises, 3)
    assert finding.kind == "exception" and finding.ranks == (1,)
    first, *rest = finding.message.splitlines()
    assert first == "rank 1 raised KeyError: 'bucket'"
    text = "\n".join(rest)
    assert f"line {line_of(_raises, 'raise')}, in _raises" in text
    assert "torch/distributed" not in text
    assert "The others:" in text
    assert "rank 0 waits for its recv of 4 B ((1,) float32) from rank 1" in text
    assert "rank 2 has returned" in text


def _raises(rank: int, _: Any) -> None:
    if rank == 1:
        {}["bucket"]  # raise
    if rank == 0:
        dist.recv(torch.empty(1), 1)


def test_ranks_that_all_raise_are_all_kept() -> None:
    def program(rank: int, _: Any) -> None:
        raise ValueError(f"rank {rank} says no")

    result = run(program, 3)
    assert sorted(result.errors) == [0, 1, 2]
    assert result.errors[2].message == "rank 2 says no"
    assert result.errors[2].type == "ValueError"


def test_an_exception_that_is_caught_is_none() -> None:
    def program(rank: int, _: Any) -> str:
        try:
            raise ValueError("never mind")
        except ValueError:
            dist.barrier()
        return "fine"

    assert assert_clean(program).returns == ["fine", "fine"]


def test_sys_exit_on_a_rank_is_an_error() -> None:
    def program(rank: int, _: Any) -> None:
        if rank == 1:
            raise SystemExit(0)

    finding = the_finding(program)
    assert finding.kind == "exception" and "sys.exit(0) was called" in finding.message


def loops(rank: int, _: Any) -> None:
    if rank == 1:
        while True:  # loop
            pass
    dist.barrier()


def test_no_progress_names_the_rank_and_where_it_is() -> None:
    result = run(loops, 2, time_limit=0.3)
    finding = result.findings[0]
    assert finding.kind == "no_progress" and finding.ranks == (1,)
    assert "in loops" in finding.message
    assert "rank 0 waits for its barrier" in finding.message
    assert result.complete


def test_long_computation_with_communication_between_is_progress() -> None:
    def program(rank: int, _: Any) -> int:
        end = time.perf_counter() + 0.6
        steps = 0
        while time.perf_counter() < end:
            dist.barrier()
            steps += 1
            if steps > 50:
                time.sleep(0.02)
                if steps > 60:
                    break
        return steps

    assert assert_clean(program, 2, time_limit=0.3).returns[0] > 50


# Schedules ------------------------------------------------------------------------------------


def test_schedules_are_reproducible_and_differ() -> None:
    def program(rank: int, order: list[int]) -> None:
        for _ in range(3):
            dist.barrier()
            order.append(rank)

    def order_of(schedule: int | None) -> list[int]:
        order: list[int] = []
        assert not run(program, 4, args=[order] * 4, schedule=schedule).findings
        return order

    assert order_of(3) == order_of(3)
    assert len({tuple(order_of(schedule)) for schedule in (None, 1, 2, 3, 4, 5)}) > 2


def test_a_schedule_finds_what_first_come_first_served_hides() -> None:
    def program(rank: int, _: Any) -> float:
        got = torch.empty(1)
        if rank == 2:
            total = 0.0
            for weight in (1.0, 10.0):
                dist.recv(got)  # whoever comes first
                total += weight * got.item()
            return total
        dist.send(torch.tensor([float(rank + 1)]), 2)
        return 0.0

    totals = {run(program, 3, schedule=schedule).returns[2] for schedule in (None, *range(1, 9))}
    assert totals == {21.0, 12.0}
    assert run(program, 3).record.order_dependent


def sleeps(rank: int, _: Any) -> None:
    if rank == 1:
        time.sleep(1e6)  # sleep
    dist.barrier()


def test_a_sleep_beyond_the_limit_is_no_progress() -> None:
    result = run(sleeps, 2, time_limit=0.3)
    finding = result.findings[0]
    assert finding.kind == "no_progress" and finding.ranks == (1,)
    assert "rank 1 sleeps" in finding.message
    assert f"test_findings_ends.py:{line_of(sleeps, 'sleep')}" in finding.message
    assert result.complete and result.seconds < 3


def test_an_empty_message_nobody_receives_is_named() -> None:
    def program(rank: int, _: Any) -> None:
        ops = [dist.P2POp(dist.isend, torch.empty(0), 1 - rank)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()

    message = the_finding(program).message
    assert "a send of 0 bytes needs a receive of 0 bytes" in message
    assert "sends first" not in message


def test_advice_on_order_is_not_given_when_the_partner_has_left() -> None:
    def program(rank: int, _: Any) -> None:
        if rank < 2:
            dist.send(torch.ones(1), 2)

    message = the_finding(program, 3).message
    assert "rank 2 returned" in message and "sends first" not in message
