"""Point to point, as torch.distributed documents it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.fabric.ranks import data, run, same

# Point to point -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool], ids=str)
def test_send_and_recv(dtype: torch.dtype) -> None:
    def program(rank: int, _: Any) -> None:
        if rank == 0:
            dist.send(data(0, dtype=dtype), 1)
        else:
            tensor = torch.empty(3, 2, dtype=dtype)
            assert dist.recv(tensor, 0) == 0
            same(tensor, data(0, dtype=dtype))

    run(program, 2)


@pytest.mark.parametrize("p2p", ["gloo", "nccl"])
def test_isend_and_irecv_round_a_ring(p2p: str) -> None:
    def program(rank: int, _: Any) -> None:
        right, left = (rank + 1) % 4, (rank - 1) % 4
        received = torch.empty(3, 2)
        works = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, data(rank), right), dist.P2POp(dist.irecv, received, left)]
        )
        for work in works:
            work.wait()
        same(received, data(left))

    run(program, 4, p2p=p2p)


def test_messages_of_one_pair_arrive_in_order_and_tags_part_them() -> None:
    def program(rank: int, _: Any) -> None:
        if rank == 0:
            works = [dist.isend(data(i), 1, tag=i % 2) for i in range(6)]
        else:
            buffers = [torch.empty(3, 2) for _ in range(6)]
            works = [dist.irecv(buffers[i], 0, tag=1) for i in (1, 3, 5)]
            works += [dist.irecv(buffers[i], 0, tag=0) for i in (0, 2, 4)]
        for work in works:
            assert work is not None
            work.wait()
        if rank == 1:
            for i, buffer in enumerate(buffers):
                same(buffer, data(i))

    run(program, 2)


def test_recv_from_any_source_says_who_sent() -> None:
    def program(rank: int, _: Any) -> None:
        group = dist.new_group([3, 1, 2], sort_ranks=False)
        if rank in (1, 2):
            dist.send(torch.tensor([rank]), 3, group=group)
        elif rank == 3:
            heard = {}
            for _ in range(2):
                tensor = torch.empty(1, dtype=torch.int64)
                source = dist.recv(tensor, group=group)
                heard[source] = tensor.item()
            assert heard == {1: 1, 2: 2}
            with pytest.raises(ValueError, match="0"):
                dist.send(torch.ones(1), 0, group=group)

    run(program, 4)


def test_irecv_from_any_source() -> None:
    def program(rank: int, _: Any) -> None:
        if rank == 0:
            tensors = [torch.empty(1) for _ in range(2)]
            works = [dist.irecv(tensor) for tensor in tensors]
            sources = set()
            for work in works:
                assert work is not None
                work.wait()
                sources.add(work._source_rank())
            assert sources == {1, 2}
            assert sorted(tensor.item() for tensor in tensors) == [1.0, 2.0]
        else:
            dist.send(torch.tensor([float(rank)]), 0)

    run(program, 3)


def test_point_to_point_by_group_rank() -> None:
    def program(rank: int, _: Any) -> None:
        group = dist.new_group([2, 0], sort_ranks=False)
        if rank == 0:  # group rank 1
            dist.send(data(7), group=group, group_dst=0)
            reply = torch.empty(3, 2)
            work = dist.irecv(reply, group=group, group_src=0)
            assert work is not None
            work.wait()
            same(reply, data(8))
        elif rank == 2:
            tensor = torch.empty(3, 2)
            dist.recv(tensor, group=group, group_src=1)
            same(tensor, data(7))
            work = dist.isend(data(8), group=group, group_dst=1)
            assert work is not None
            work.wait()

    run(program, 3)


def test_a_batch_in_a_sub_group_with_permuted_ranks() -> None:
    def program(rank: int, _: Any) -> None:
        ranks = [3, 0, 2]
        group = dist.new_group(ranks, sort_ranks=False)
        if rank not in ranks:
            return
        me = dist.get_rank(group)
        assert ranks[me] == rank
        right, left = ranks[(me + 1) % 3], ranks[(me - 1) % 3]
        buffer = torch.empty(3, 2)
        operations = [
            dist.P2POp(dist.isend, data(rank), right, group),
            dist.P2POp(dist.irecv, buffer, left, group),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        same(buffer, data(left))
        operations = [
            dist.P2POp(dist.isend, data(rank), group=group, group_peer=(me + 1) % 3),
            dist.P2POp(dist.irecv, buffer, group=group, group_peer=(me - 1) % 3),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        same(buffer, data(left))

    run(program, 4)
