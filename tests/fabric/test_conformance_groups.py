"""Sub-groups, objects and device meshes, as torch.distributed documents them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from grader.fabric import simulate
from tests.fabric.ranks import data, run, same

#: The older names of the same calls are what most programs use.
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")


# Groups -------------------------------------------------------------------------------------------


def test_collectives_of_a_sub_group_follow_its_own_order() -> None:
    def program(rank: int, _: Any) -> None:
        ranks = [3, 0, 2]
        group = dist.new_group(ranks, sort_ranks=False)
        if rank == 1:
            assert group == dist.GroupMember.NON_GROUP_MEMBER
            return
        me = ranks.index(rank)
        gathered = [torch.empty(3, 2) for _ in ranks]
        dist.all_gather(gathered, data(rank), group=group)
        for tensor, source in zip(gathered, ranks, strict=True):
            same(tensor, data(source))
        tensor = data(rank)
        dist.broadcast(tensor, src=2, group=group)
        same(tensor, data(2))
        dist.broadcast(tensor, group_src=0, group=group)
        same(tensor, data(2))
        tensor = data(rank)
        dist.reduce(tensor, dst=0, group=group)
        same(tensor, sum(data(r) for r in ranks) if rank == 0 else data(rank))
        shard = torch.empty(1, 2)
        dist.reduce_scatter_tensor(shard, data(rank), group=group)
        same(shard, sum(data(r) for r in ranks)[me : me + 1])
        received = torch.empty(2)
        dist.scatter(received, [data(r, (2,)) for r in range(3)] if rank == 2 else None, 2, group)
        same(received, data(me, (2,)))
        rows = torch.empty(3, 2)
        dist.all_to_all_single(rows, data(rank), group=group)
        same(rows, torch.stack([data(r)[me] for r in ranks]))

    run(program, 4)


def test_what_is_known_of_a_group() -> None:
    def program(rank: int, _: Any) -> None:
        group = dist.new_group([2, 0], sort_ranks=False)
        assert dist.is_available() and dist.is_initialized()
        assert (dist.get_rank(), dist.get_world_size(), dist.get_backend()) == (rank, 3, "sim")
        assert dist.get_process_group_ranks(dist.group.WORLD) == [0, 1, 2]
        if rank == 1:
            assert dist.get_rank(group) == dist.get_world_size(group) == -1
            return
        assert dist.get_backend(group) == "sim"
        assert dist.get_world_size(group) == group.size() == 2
        assert dist.get_rank(group) == group.rank() == [2, 0].index(rank)
        assert dist.get_process_group_ranks(group) == [2, 0]
        assert dist.get_group_rank(group, 2) == 0
        assert dist.get_global_rank(group, 1) == 0
        with pytest.raises(ValueError, match="1"):
            dist.get_group_rank(group, 1)

    run(program, 3)


@pytest.mark.parametrize("backend", [None, "gloo", "nccl", "cpu:gloo,cuda:nccl"])
def test_new_group_of_any_backend_is_simulated(backend: str | None) -> None:
    def program(rank: int, _: Any) -> float:
        group = dist.new_group(backend=backend, group_desc="all of them")
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=group)
        return tensor.item()

    assert run(program, 3) == [3.0] * 3


def test_groups_of_equal_ranks_are_apart() -> None:
    def program(rank: int, _: Any) -> None:
        a, b = dist.new_group([0, 1]), dist.new_group([0, 1])
        first, second = torch.tensor([rank]), torch.tensor([rank + 10])
        order = [(first, a), (second, b)] if rank == 0 else [(second, b), (first, a)]
        works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor, group in order]
        for work in works:
            assert work is not None
            work.wait()
        assert (first.item(), second.item()) == (1, 21)

    run(program, 2)


def test_new_subgroups() -> None:
    def program(rank: int, _: Any) -> None:
        mine, groups = dist.new_subgroups(2)
        assert len(groups) == 2
        assert dist.get_process_group_ranks(mine) == ([0, 1] if rank < 2 else [2, 3])
        crossed, _ = dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])
        tensor = torch.tensor([rank])
        dist.all_reduce(tensor, group=crossed)
        assert tensor.item() == (2 if rank % 2 == 0 else 4)

    run(program, 4)


def test_a_group_made_by_its_members_only() -> None:
    def program(rank: int, _: Any) -> None:
        if rank != 1:
            group = dist.new_group([0, 2], use_local_synchronization=True)
            tensor = torch.tensor([rank])
            dist.all_reduce(tensor, group=group)
            assert tensor.item() == 2

    run(program, 3)


def test_destroy_and_initialize_again() -> None:
    def program(rank: int, _: Any) -> None:
        group = dist.new_group([0, 1])
        if rank < 2:
            dist.barrier(group)
            dist.destroy_process_group(group)
        dist.destroy_process_group()
        assert not dist.is_initialized()
        with pytest.raises(ValueError, match="init_process_group"):
            dist.get_world_size()
        dist.init_process_group("gloo", init_method="env://")
        tensor = torch.tensor([rank])
        dist.all_reduce(tensor)
        assert tensor.item() == 3

    run(program, 3)


def test_a_program_that_initializes_itself() -> None:
    def program(rank: int, _: Any) -> None:
        assert not dist.is_initialized()
        dist.init_process_group("nccl")
        assert dist.get_rank() == rank
        dist.barrier()
        dist.destroy_process_group()

    run(program, 3, initialize=False)


def test_init_process_group_refuses_another_world() -> None:
    def program(rank: int, _: Any) -> None:
        with pytest.raises(ValueError, match="world_size=5, but this simulated rank has 2"):
            dist.init_process_group("gloo", rank=rank, world_size=5)

    run(program, 2, initialize=False)


def test_the_store_of_the_default_group() -> None:
    def program(rank: int, _: Any) -> None:
        store = dist.distributed_c10d._get_default_store()
        if rank == 0:
            store.set("key", "value")
        assert store.get("key") == b"value"
        assert store.add("counter", 1) in (1, 2, 3)
        dist.barrier()
        assert store.add("counter", 0) == 3
        prefixed = dist.PrefixStore("mine", store)
        prefixed.set(str(rank), b"\x00\xff")
        prefixed.wait([str(r) for r in range(3)])
        assert prefixed.multi_get(["0", "2"]) == [b"\x00\xff"] * 2
        assert not store.check(["absent"])
        if rank == 0:
            assert store.compare_set("lock", "", "taken") == b"taken"
        dist.barrier()
        assert store.compare_set("lock", "free", "mine") == b"taken"
        assert prefixed.delete_key(str(rank))
        assert not prefixed.delete_key(str(rank))

    run(program, 3)


def test_waiting_in_the_store_for_what_nobody_sets_is_a_deadlock_at_once() -> None:
    def program(rank: int, _: Any) -> None:
        dist.distributed_c10d._get_default_store().get("absent")

    result = simulate(program, 2)
    assert [finding.kind for finding in result.findings] == ["deadlock"]


def test_a_time_out_of_the_programs_own_ends_a_wait_in_the_store() -> None:
    def program(rank: int, _: Any) -> None:
        store = dist.distributed_c10d._get_default_store()
        with pytest.raises(dist.DistStoreError, match="absent"):
            store.wait(["absent"], timedelta(milliseconds=20))
        store.set_timeout(timedelta(milliseconds=30))
        with pytest.raises(dist.DistStoreError, match="30ms"):
            store.get("absent")

    run(program, 2)


# Objects ------------------------------------------------------------------------------------------


def test_object_collectives() -> None:
    def program(rank: int, _: Any) -> None:
        mine = {"rank": rank, "text": "x" * rank, "tensor": torch.tensor([rank])}
        everyone: list[Any] = [None] * 3
        dist.all_gather_object(everyone, mine)
        assert [o["text"] for o in everyone] == ["", "x", "xx"]
        assert [o["tensor"].item() for o in everyone] == [0, 1, 2]

        shared = ["a", [1, 2], None] if rank == 1 else [None] * 3
        dist.broadcast_object_list(shared, src=1)
        assert shared == ["a", [1, 2], None]

        at_root: list[Any] | None = [None] * 3 if rank == 2 else None
        dist.gather_object(rank * "y", at_root, dst=2)
        assert at_root == (["", "y", "yy"] if rank == 2 else None)

        received: list[Any] = [None]
        dist.scatter_object_list(received, [{"to": r} for r in range(3)] if rank == 0 else None, 0)
        assert received == [{"to": rank}]

    run(program, 3)


def test_objects_from_rank_to_rank_and_within_a_group() -> None:
    def program(rank: int, _: Any) -> None:
        group = dist.new_group([2, 0], sort_ranks=False)
        if rank == 0:
            dist.send_object_list(["hello", {1: 2}], dst=2, group=group)
        elif rank == 2:
            objects: list[Any] = [None, None]
            assert dist.recv_object_list(objects, src=0, group=group) == 0
            assert objects == ["hello", {1: 2}]
        if rank != 1:
            gathered: list[Any] = [None, None]
            dist.all_gather_object(gathered, rank, group=group)
            assert gathered == [2, 0]

    run(program, 3)


# Meshes -------------------------------------------------------------------------------------------


def test_device_mesh_of_two_dimensions() -> None:
    def program(rank: int, _: Any) -> None:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        assert list(mesh.get_coordinate() or ()) == [rank // 2, rank % 2]
        assert mesh["tp"].get_local_rank() == mesh.get_local_rank("tp") == rank % 2
        assert mesh.size() == 4 and mesh.size(0) == 2 and mesh["dp"].size() == 2
        tensor = torch.tensor([rank])
        dist.all_reduce(tensor, group=mesh.get_group("tp"))
        assert tensor.item() == (1 if rank < 2 else 5)
        tensor = torch.tensor([rank])
        dist.all_reduce(tensor, group=mesh["dp"].get_group())
        assert tensor.item() == 2 + 2 * (rank % 2)
        assert dist.get_process_group_ranks(mesh["dp"].get_group()) == [rank % 2, rank % 2 + 2]
        assert [dist.get_world_size(g) for g in mesh.get_all_groups()] == [2, 2]

    run(program, 4)


def test_device_mesh_of_permuted_ranks_and_of_a_group() -> None:
    def program(rank: int, _: Any) -> None:
        mesh = DeviceMesh("cpu", torch.tensor([[3, 1], [0, 2]]), mesh_dim_names=("a", "b"))
        tensor = torch.tensor([rank])
        dist.all_reduce(tensor, group=mesh.get_group("a"))
        assert tensor.item() == 3
        tensor = torch.tensor([rank])
        dist.all_reduce(tensor, group=mesh.get_group("b"))
        assert tensor.item() == (4 if rank in (1, 3) else 2)
        whole = DeviceMesh.from_group(dist.group.WORLD, "cpu", mesh_dim_names=("world",))
        assert whole.size() == 4 and whole.get_local_rank() == rank

    run(program, 4)


def test_device_mesh_of_three_dimensions_flattened() -> None:
    def program(rank: int, _: Any) -> None:
        mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("pp", "dp", "tp"))
        assert mesh["dp", "tp"].size() == 4
        flat = mesh["dp", "tp"]._flatten("dp_tp")
        tensor = torch.tensor([rank])
        dist.all_reduce(tensor, group=flat.get_group())
        assert tensor.item() == (6 if rank < 4 else 22)

    run(program, 8)
