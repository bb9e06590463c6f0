"""Buffers that are used while they are in flight, and what is left over."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from tests.fabric.programs import assert_clean, line_of, run, the_finding

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
        f"at test_findings_buffers.py:{line_of(reads_early, 'read')}" in finding.message
    )
    assert f"posted at test_findings_buffers.py:{line_of(reads_early, 'post')}" in finding.message
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
        f"at test_findings_buffers.py:{line_of(changes_early, 'change')}" in finding.message
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
        f"at test_findings_buffers.py:{line_of(never_waits, 'post')}" in finding.message
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
