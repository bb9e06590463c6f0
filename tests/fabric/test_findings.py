"""Every strict finding: a program that has the fault, and one that almost has it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from grader.fabric import Finding, SimulationResult, simulate

Program = Callable[[int, Any], Any]


def run(program: Program, ranks: int = 2, **options: Any) -> SimulationResult:
    return simulate(program, ranks, **options)


def the_finding(program: Program, ranks: int = 2, **options: Any) -> Finding:
    result = run(program, ranks, **options)
    assert result.findings, "nothing was found"
    return result.findings[0]


def assert_clean(program: Program, ranks: int = 2, **options: Any) -> SimulationResult:
    result = run(program, ranks, **options)
    assert not result.findings, result.findings[0].message
    assert not result.warnings, result.warnings[0].message
    return result


def line_of(program: Program, mark: str) -> int:
    """The line of this file that carries `# mark` inside `program`."""
    import inspect

    lines, first = inspect.getsourcelines(program)
    for number, line in enumerate(lines, start=first):
        if line.rstrip().endswith(f"# {mark}"):
            return number
    raise AssertionError(f"no line marked {mark}")


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
        f"at test_findings.py:{line}" in finding.message
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


# Buffers in flight ----------------------------------------------------------------------------


def reads_early(rank: int, _: Any) -> None:
    got = torch.empty(4)
    if rank == 0:
        dist.send(torch.ones(4), 1)
    else:
        work = dist.irecv(got, 0)  # post
        got.sum()  # read
        work.wait()


def test_receive_buffer_read_before_wait_names_both_lines() -> None:
    finding = the_finding(reads_early)
    assert finding.kind == "receive_buffer_read"
    assert (
        "rank 1 read a buffer that is still being received "
        f"at test_findings.py:{line_of(reads_early, 'read')}" in finding.message
    )
    assert f"posted at test_findings.py:{line_of(reads_early, 'post')}" in finding.message
    assert "recv of 16 B ((4,) float32) from rank 0" in finding.message


def test_receive_buffer_is_seen_through_views_and_holds_nan() -> None:
    def program(rank: int, _: Any) -> list[float]:
        got = torch.zeros(4)
        if rank == 0:
            dist.send(torch.ones(4), 1)
            return []
        work = dist.irecv(got, 0)
        early = got.numpy().tolist()  # numpy sees the memory without PyTorch knowing
        work.wait()
        return early

    early = run(program).returns[1]
    assert all(value != value for value in early)
    finding = the_finding(_reads_a_view)
    assert finding.kind == "receive_buffer_read"


def _reads_a_view(rank: int, _: Any) -> None:
    whole = torch.zeros(8)
    if rank == 0:
        dist.send(torch.ones(4), 1)
    else:
        work = dist.irecv(whole[4:], 0)
        whole[6:7].add(1)
        work.wait()


def test_the_other_half_of_a_buffer_may_be_read() -> None:
    def program(rank: int, _: Any) -> float:
        whole = torch.ones(8)
        if rank == 0:
            dist.send(torch.full((4,), 3.0), 1)
            return 0.0
        work = dist.irecv(whole[4:], 0)
        whole[:4].mul_(2)
        columns = whole.view(2, 4)[:1, ::2].sum()  # strided, beside the buffer
        work.wait()
        return float(whole.sum() + columns)

    assert assert_clean(program).returns[1] == 8.0 + 12.0 + 4.0


def test_looking_at_the_shape_of_a_receive_buffer_is_no_read() -> None:
    def program(rank: int, _: Any) -> int:
        got = torch.empty(4)
        if rank == 0:
            dist.send(torch.ones(4), 1)
            return 0
        work = dist.irecv(got, 0)
        other = torch.zeros_like(got)
        half = got[:2]
        work.wait()
        return int(other.numel() + half.sum())

    assert assert_clean(program).returns[1] == 6


def test_reading_an_all_reduce_in_flight_is_found() -> None:
    def program(rank: int, _: Any) -> None:
        tensor = torch.ones(2)
        work = dist.all_reduce(tensor, async_op=True)
        tensor.add_(1)
        assert work is not None
        work.wait()

    finding = the_finding(program)
    assert finding.kind == "receive_buffer_read" and "all_reduce" in finding.message


def changes_early(rank: int, _: Any) -> None:
    if rank == 0:
        tensor = torch.ones(4)
        work = dist.isend(tensor, 1)
        tensor[2:].zero_()  # change
        work.wait()
    else:
        dist.recv(torch.empty(4), 0)


def test_send_buffer_changed_before_wait_names_the_line() -> None:
    finding = the_finding(changes_early)
    assert finding.kind == "send_buffer_changed"
    assert (
        "rank 0 changed a buffer that it is still sending "
        f"at test_findings.py:{line_of(changes_early, 'change')}" in finding.message
    )


def test_send_buffer_changed_behind_pytorchs_back_is_found_at_wait() -> None:
    def program(rank: int, _: Any) -> None:
        if rank == 0:
            tensor = torch.ones(4)
            work = dist.isend(tensor, 1)
            tensor.numpy()[3] = 5.0
            work.wait()
        else:
            dist.recv(torch.empty(4), 0)

    finding = the_finding(program)
    assert finding.kind == "send_buffer_changed" and "element 3" in finding.message


def test_send_buffer_may_be_read_before_and_changed_after_wait() -> None:
    def program(rank: int, _: Any) -> float:
        got = torch.empty(4)
        if rank == 0:
            tensor = torch.tensor([1.0, float("nan"), 2.0, 3.0])
            work = dist.isend(tensor, 1)
            copy = tensor + 1
            work.wait()
            tensor.zero_()
            return float(copy[0])
        dist.recv(got, 0)
        return float(got[3])

    assert assert_clean(program).returns == [2.0, 3.0]


def test_one_buffer_for_sending_and_receiving_at_once_is_found() -> None:
    def program(rank: int, _: Any) -> None:
        tensor = torch.ones(4)
        works = [dist.isend(tensor, 1 - rank), dist.irecv(tensor, 1 - rank)]
        for work in works:
            work.wait()

    finding = the_finding(program)
    assert finding.kind == "buffers_overlap"
    assert "recv of 16 B" in finding.message and "send of 16 B" in finding.message


def test_one_buffer_may_be_sent_to_two_ranks_at_once() -> None:
    def program(rank: int, _: Any) -> float:
        tensor = torch.full((2,), 7.0)
        if rank == 0:
            for work in [dist.isend(tensor, 1), dist.isend(tensor, 2)]:
                work.wait()
        else:
            tensor.zero_()
            dist.recv(tensor, 0)
        return tensor[1].item()

    assert assert_clean(program, 3).returns == [7.0, 7.0, 7.0]


# What is left over ----------------------------------------------------------------------------


def never_waits(rank: int, _: Any) -> None:
    if rank == 0:
        dist.send(torch.ones(2), 1)
    else:
        dist.irecv(torch.empty(2), 0)  # post


def test_receive_never_waited_for_is_an_error_with_its_line() -> None:
    finding = the_finding(never_waits)
    assert finding.kind == "receive_not_waited" and finding.severity == "error"
    assert (
        "rank 1 never waited for its recv of 8 B ((2,) float32) from rank 0 "
        f"at test_findings.py:{line_of(never_waits, 'post')}" in finding.message
    )


def test_send_never_waited_for_is_a_warning() -> None:
    def program(rank: int, _: Any) -> None:
        if rank == 0:
            dist.isend(torch.ones(2), 1)
        else:
            dist.recv(torch.empty(2), 0)

    result = run(program)
    assert not result.findings
    assert result.warnings[0].kind == "send_not_waited"
    assert "rank 0 never waited for its send of 8 B" in result.warnings[0].message


def test_message_never_received_is_found() -> None:
    def program(rank: int, _: Any) -> None:
        if rank == 0:
            dist.isend(torch.ones(3), 1)

    finding = the_finding(program)
    assert finding.kind == "message_not_received"
    assert "rank 0 sent 12 B to rank 1" in finding.message
    assert "rank 1 never received" in finding.message


def test_asynchronous_collective_never_waited_for_is_found() -> None:
    def program(rank: int, _: Any) -> None:
        dist.all_reduce(torch.ones(2), async_op=True)

    finding = the_finding(program)
    assert finding.kind == "receive_not_waited" and "all_reduce" in finding.message


def test_polling_until_completed_counts_as_waiting() -> None:
    def program(rank: int, _: Any) -> float:
        got = torch.empty(1)
        if rank == 0:
            work = dist.isend(torch.full((1,), 4.0), 1)
        else:
            work = dist.irecv(got, 0)
        while not work.is_completed():
            pass
        return got.item() if rank else 0.0

    result = assert_clean(program)
    assert result.returns[1] == 4.0
    assert result.record.order_dependent


# Mismatches -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("received", "text"),
    [
        (torch.empty(3), "16 B sent, 12 B expected"),
        (torch.empty(4, dtype=torch.int32), "float32 sent, int32 expected"),
        (torch.empty(4, device="meta"), "sent from cpu, received on meta"),
    ],
)
def test_sender_and_receiver_that_disagree(received: torch.Tensor, text: str) -> None:
    def program(rank: int, _: Any) -> None:
        if rank == 0:
            dist.send(torch.ones(4), 1)
        else:
            dist.recv(received, 0)

    finding = the_finding(program)
    assert finding.kind == "message_mismatch"
    assert text in finding.message
    assert "rank 0 sends (4,) float32 to rank 1 at test_findings.py:" in finding.message
    assert "rank 1 receives" in finding.message


def test_another_shape_of_the_same_size_is_a_match() -> None:
    def program(rank: int, _: Any) -> list[list[float]]:
        got = torch.empty(2, 2)
        if rank == 0:
            dist.send(torch.arange(4.0), 1)
        else:
            dist.recv(got, 0)
        return got.tolist()

    assert assert_clean(program).returns[1] == [[0.0, 1.0], [2.0, 3.0]]


@pytest.mark.parametrize(
    ("on_first", "on_second", "text"),
    [
        (lambda: dist.barrier(), lambda: dist.all_reduce(torch.ones(1)), "barrier and all_reduce"),
        (
            lambda: dist.all_reduce(torch.ones(2)),
            lambda: dist.all_reduce(torch.ones(3)),
            "all_reduce of (2,) float32 and of (3,) float32",
        ),
        (
            lambda: dist.all_reduce(torch.ones(2)),
            lambda: dist.all_reduce(torch.ones(2, dtype=torch.float64)),
            "all_reduce of (2,) float32 and of (2,) float64",
        ),
        (
            lambda: dist.all_reduce(torch.ones(2)),
            lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.MAX),
            "op SUM and with op MAX",
        ),
        (
            lambda: dist.broadcast(torch.ones(2), 0),
            lambda: dist.broadcast(torch.ones(2), 1),
            "root 0 and with root 1",
        ),
    ],
)
def test_ranks_that_call_different_collectives(
    on_first: Callable[[], None], on_second: Callable[[], None], text: str
) -> None:
    def program(rank: int, _: Any) -> None:
        (on_second if rank else on_first)()

    finding = the_finding(program)
    assert finding.kind == "collective_mismatch"
    assert text in finding.message
    assert set(finding.ranks) == {0, 1} and len(finding.locations) == 2


def test_different_collectives_in_different_groups_are_fine() -> None:
    def program(rank: int, _: Any) -> float:
        groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        tensor = torch.tensor([float(rank)])
        if rank < 2:
            dist.all_reduce(tensor, group=groups[0])
        else:
            dist.broadcast(tensor, 3, group=groups[1])
        return tensor.item()

    assert assert_clean(program, 4).returns == [1.0, 1.0, 3.0, 3.0]


def test_uneven_splits_that_do_not_fit_are_found() -> None:
    def program(rank: int, _: Any) -> None:
        splits = [1, 2] if rank == 0 else [1, 1]
        dist.all_to_all_single(torch.empty(2), torch.ones(sum(splits)), [1, 1], splits)

    finding = the_finding(program)
    assert finding.kind == "collective_mismatch"
    assert "brings 2 elements from group rank 0 where group rank 1 expects 1" in finding.message


# Contiguity -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [lambda: torch.ones(4, 4)[:, :2], lambda: torch.ones(1).expand(4), lambda: torch.ones(8)[::2]],
)
@pytest.mark.parametrize("call", [dist.all_reduce, lambda t: dist.broadcast(t, 0)])
def test_strided_and_expanded_tensors_are_refused(
    make: Callable[[], torch.Tensor], call: Callable[[torch.Tensor], None]
) -> None:
    finding = the_finding(lambda rank, _: call(make()))
    assert finding.kind == "non_contiguous"
    assert "is not contiguous (shape" in finding.message and "strides" in finding.message


def test_strided_tensors_are_refused_point_to_point() -> None:
    def program(rank: int, _: Any) -> None:
        if rank == 0:
            dist.send(torch.ones(4, 4).t(), 1)
        else:
            dist.recv(torch.empty(4, 4), 0)

    assert the_finding(program).kind == "non_contiguous"


def test_dense_tensors_in_one_memory_order_may_be_all_reduced() -> None:
    def program(rank: int, _: Any) -> bool:
        tensor = torch.arange(6.0).view(2, 3).t()
        dist.all_reduce(tensor)
        return torch.equal(tensor, 2 * torch.arange(6.0).view(2, 3).t())

    assert assert_clean(program).returns == [True, True]


def test_dense_tensors_in_different_memory_orders_are_found() -> None:
    def program(rank: int, _: Any) -> None:
        dist.all_reduce(torch.ones(3, 3) if rank else torch.ones(3, 3).t())

    finding = the_finding(program)
    assert finding.kind == "collective_mismatch" and "strides" in finding.message


def test_contiguous_slices_are_fine() -> None:
    def program(rank: int, _: Any) -> float:
        tensor = torch.ones(4, 4)
        dist.all_reduce(tensor[1:3])
        return tensor.sum().item()

    assert assert_clean(program).returns == [24.0, 24.0]


# Calls that a task forbids --------------------------------------------------------------------


def test_a_forbidden_collective_is_named_with_its_line() -> None:
    finding = the_finding(_calls_all_reduce, allow={"p2p"})
    assert finding.kind == "forbidden_call"
    line = line_of(_calls_all_reduce, "call")
    assert (
        f"rank 0 called all_reduce at test_findings.py:{line}, which this task forbids"
        in finding.message
    )


def _calls_all_reduce(rank: int, _: Any) -> None:
    dist.all_reduce(torch.ones(2))  # call


def test_object_collectives_and_the_store_are_no_way_around() -> None:
    def objects(rank: int, _: Any) -> None:
        dist.all_gather_object([None, None], rank)

    def store(rank: int, _: Any) -> None:
        from torch.distributed.distributed_c10d import _get_default_store

        _get_default_store().set(str(rank), "x")

    assert the_finding(objects, allow={"p2p"}).kind == "forbidden_call"
    assert the_finding(store, allow={"p2p"}).details["call"] == "store.set"


def test_point_to_point_calls_and_groups_are_allowed() -> None:
    def program(rank: int, _: Any) -> float:
        group = dist.new_group([0, 1])
        got = torch.empty(1)
        if rank == 0:
            dist.send(torch.full((1,), 9.0), group=group, group_dst=1)
        else:
            dist.recv(got, group=group, group_src=0)
        return got.item() if rank else 0.0

    assert assert_clean(program, allow={"p2p"}).returns == [0.0, 9.0]


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
    assert f"test_findings.py:{line_of(sleeps, 'sleep')}" in finding.message
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
