"""Programs that wait for each other for ever, by gloo's rules and by NCCL's."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist

from tests.fabric.programs import assert_clean, line_of, run, the_finding

# Deadlocks ------------------------------------------------------------------------------------


def all_send_first(rank: int, _: Any) -> None:
    size = dist.get_world_size()
    dist.send(torch.ones(1024), (rank + 1) % size)  # send
    dist.recv(torch.empty(1024), (rank - 1) % size)


def test_deadlock_draws_the_cycle_with_sizes_and_lines() -> None:
    finding = the_finding(all_send_first, 3)
    line = line_of(all_send_first, "send")
    assert finding.kind == "deadlock"
    assert "rank 0 → rank 1 → rank 2 → rank 0 wait for each other" in finding.message
    assert (
        "rank 1 waits for its send of 4.0 KiB ((1024,) float32) to rank 2 "
        f"at test_findings_deadlocks.py:{line}" in finding.message
    )
    assert "Every rank here sends first" in finding.message
    assert finding.details["cycle"] == [0, 1, 2]
    assert finding.locations[2].line == line


def test_one_rank_that_receives_first_breaks_the_circle() -> None:
    def program(rank: int, _: Any) -> float:
        size, got = dist.get_world_size(), torch.empty(1)
        mine = torch.tensor([float(rank)])
        if rank == 0:
            dist.recv(got, size - 1)
            dist.send(mine, 1)
        else:
            dist.send(mine, (rank + 1) % size)
            dist.recv(got, rank - 1)
        return got.item()

    assert assert_clean(program, 3).returns == [2.0, 0.0, 1.0]


def test_posting_both_at_once_is_no_deadlock() -> None:
    def program(rank: int, _: Any) -> float:
        size, got = dist.get_world_size(), torch.empty(1)
        work = dist.isend(torch.tensor([float(rank)]), (rank + 1) % size)
        dist.recv(got, (rank - 1) % size)
        work.wait()
        return got.item()

    assert assert_clean(program, 5).returns == [4.0, 0.0, 1.0, 2.0, 3.0]


def test_waiting_for_a_rank_that_has_returned_names_it() -> None:
    def program(rank: int, _: Any) -> None:
        if rank == 0:
            dist.recv(torch.empty(2), 1)

    finding = the_finding(program)
    assert finding.kind == "deadlock"
    assert "rank 1 returned without doing what others wait for" in finding.message
    assert "rank 0 waits for its recv of 8 B ((2,) float32) from rank 1" in finding.message
    assert "rank 1 has returned" in finding.message


def test_a_collective_that_one_rank_skips_is_a_deadlock() -> None:
    def program(rank: int, _: Any) -> None:
        if rank != 2:
            dist.all_reduce(torch.ones(3))

    finding = the_finding(program, 3)
    assert finding.kind == "deadlock"
    assert "rank 2 returned" in finding.message and "all_reduce of 12 B" in finding.message


def test_tags_that_differ_are_pointed_out() -> None:
    def program(rank: int, _: Any) -> None:
        if rank == 0:
            dist.send(torch.ones(1), 1, tag=7)
        else:
            dist.recv(torch.empty(1), 0, tag=8)

    finding = the_finding(program)
    assert finding.kind == "deadlock"
    assert "would match" in finding.message and "their tags differ" in finding.message


def test_groups_that_differ_are_pointed_out() -> None:
    def program(rank: int, _: Any) -> None:
        group = dist.new_group([0, 1])
        if rank == 0:
            dist.send(torch.ones(1), 1, group=group)
        else:
            dist.recv(torch.empty(1), 0)

    assert "their groups differ" in the_finding(program).message


def test_a_deadlock_is_reported_within_a_tenth_of_a_second() -> None:
    happened = 0.0

    def program(rank: int, _: Any) -> None:
        nonlocal happened
        happened = time.perf_counter()
        all_send_first(rank, None)

    result = run(program, 8)
    reported = time.perf_counter()
    assert result.findings[0].kind == "deadlock"
    assert reported - happened < 0.1


# NCCL's order ---------------------------------------------------------------------------------


def unbatched_ring(rank: int, _: Any) -> float:
    size, got = dist.get_world_size(), torch.empty(1)
    works = [
        dist.isend(torch.tensor([float(rank)]), (rank + 1) % size),
        dist.irecv(got, (rank - 1) % size),
    ]
    for work in works:
        work.wait()
    return got.item()


def batched_ring(rank: int, _: Any) -> float:
    size, got = dist.get_world_size(), torch.empty(1)
    ops = [
        dist.P2POp(dist.isend, torch.tensor([float(rank)]), (rank + 1) % size),
        dist.P2POp(dist.irecv, got, (rank - 1) % size),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return got.item()


def test_unbatched_calls_hang_in_nccls_order_and_the_message_teaches_the_batch() -> None:
    assert_clean(unbatched_ring, 3)
    finding = the_finding(unbatched_ring, 3, p2p="nccl")
    assert finding.kind == "deadlock"
    assert "Hand them to batch_isend_irecv" in finding.message


def test_a_batch_runs_in_nccls_order() -> None:
    assert assert_clean(batched_ring, 3, p2p="nccl").returns == [2.0, 0.0, 1.0]


def test_unbatched_calls_in_an_order_that_works_run_in_nccls_order() -> None:
    def program(rank: int, _: Any) -> float:
        got, mine = torch.empty(1), torch.tensor([float(rank)])
        if rank == 0:
            works = [dist.isend(mine, 1), dist.irecv(got, 1)]
        else:
            works = [dist.irecv(got, 0), dist.isend(mine, 0)]
        for work in works:
            work.wait()
        return got.item()

    assert assert_clean(program, 2, p2p="nccl").returns == [1.0, 0.0]
