"""Tells everybody the largest slice and sends slices of that size only."""

import torch
import torch.distributed as dist

TASK = "a1.all_to_all_single"
EXPECT = {
    "status": "failed",
    "check": "sends every byte once",
    "cause": "something travels beside the slice",
}


def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None):
    rank, size, leaving, arriving = _start(
        output, input, output_split_sizes, input_split_sizes, group
    )
    peers = [peer for peer in range(size) if peer != rank]
    rows = torch.tensor([max(len(each) for each in (*leaving, *arriving))])
    everyone = {peer: torch.empty_like(rows) for peer in peers}
    _swap(peers, {peer: rows for peer in peers}, everyone, group)
    most = max(int(each) for each in (rows, *everyone.values()))
    padded, rooms = {}, {}
    for peer in peers:
        padded[peer] = torch.zeros((most, *input.shape[1:]), dtype=input.dtype)
        padded[peer][: len(leaving[peer])] = leaving[peer]
        rooms[peer] = torch.empty_like(padded[peer])
    _swap(peers, padded, rooms, group)
    arriving[rank].copy_(leaving[rank])
    for peer in peers:
        arriving[peer].copy_(rooms[peer][: len(arriving[peer])])


def _swap(peers, messages, rooms, group):
    batch = []
    for peer in peers:
        batch.append(dist.P2POp(dist.irecv, rooms[peer], group=group, group_peer=peer))
        batch.append(dist.P2POp(dist.isend, messages[peer], group=group, group_peer=peer))
    for work in dist.batch_isend_irecv(batch) if batch else ():
        work.wait()


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
