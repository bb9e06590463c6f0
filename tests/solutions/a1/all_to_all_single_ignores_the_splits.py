"""Cuts into equal slices even when split sizes are given."""

import torch
import torch.distributed as dist

TASK = "a1.all_to_all_single"
EXPECT = {
    "status": "failed",
    "check": "sends every slice to its rank",
    "cause": "split sizes",
}


def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    leaving = input.tensor_split(size)
    arriving = output.tensor_split(size)
    batch, rooms = [], {}
    for peer in range(size):
        if peer != rank:
            rooms[peer] = torch.empty(arriving[peer].shape, dtype=output.dtype)
            message = leaving[peer].contiguous()
            batch.append(dist.P2POp(dist.irecv, rooms[peer], group=group, group_peer=peer))
            batch.append(dist.P2POp(dist.isend, message, group=group, group_peer=peer))
    for work in dist.batch_isend_irecv(batch) if batch else ():
        work.wait()
    arriving[rank].copy_(leaving[rank])
    for peer, room in rooms.items():
        arriving[peer].copy_(room)
