"""Compares its group rank with global ranks, so that in a sub-group a rank meets itself."""

import torch
import torch.distributed as dist

TASK = "a1.all_to_all_single"
EXPECT = {
    "status": "error",
    "check": "works in sub-groups",
    "cause": "a rank meets itself",
}


def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None):
    rank, size, leaving, arriving = _start(
        output, input, output_split_sizes, input_split_sizes, group
    )
    members = range(size) if group is None else dist.get_process_group_ranks(group)
    works, rooms = [], {}
    for place, peer in enumerate(members):
        if peer == rank:
            arriving[place].copy_(leaving[place])
            continue
        if arriving[place].numel():
            rooms[place] = torch.empty(arriving[place].shape, dtype=output.dtype)
            works.append(dist.irecv(rooms[place], peer, group))
        if leaving[place].numel():
            works.append(dist.isend(leaving[place].contiguous(), peer, group))
    for work in works:
        work.wait()
    for place, room in rooms.items():
        arriving[place].copy_(room)


def _start(output, input, output_split_sizes, input_split_sizes, group):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    slices = []
    for name, tensor, sizes in (
        ("input", input, input_split_sizes),
        ("output", output, output_split_sizes),
    ):
        if sizes is None:
            if tensor.size(0) % size:
                raise ValueError(f"{name}: {tensor.size(0)} rows for {size} ranks")
            sizes = [tensor.size(0) // size] * size
        if len(sizes) != size or min(sizes) < 0 or sum(sizes) != tensor.size(0):
            raise ValueError(
                f"{name}_split_sizes={sizes} (sum {sum(sizes)}): expected {size} sizes of at "
                f"least 0 with sum {tensor.size(0)}"
            )
        slices.append(tensor.split(list(sizes)))
    leaving, arriving = slices
    mine, room = leaving[rank], arriving[rank]
    if (mine.dtype, mine.shape) != (room.dtype, room.shape):
        raise ValueError(
            f"output: {room.dtype} {tuple(room.shape)}, "
            f"expected as input: {mine.dtype} {tuple(mine.shape)}"
        )
    return rank, size, leaving, arriving
