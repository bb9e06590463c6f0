"""Every rank sends to every other rank; all but the root throw away what they get."""

import torch
import torch.distributed as dist

TASK = "a1.gather"
EXPECT = {
    "status": "failed",
    "check": "brings the root each tensor once",
    "cause": "not only to the root",
}


def gather(tensor, outputs, dst, group=None):
    ranks = dist.get_process_group_ranks(group)
    if dst not in ranks:
        raise ValueError(f"dst={dst} is not one of {ranks}")
    rank, size, root = dist.get_rank(group), len(ranks), ranks.index(dst)
    if rank == root and (outputs is None or len(outputs) != size):
        raise ValueError(f"outputs={outputs}: expected {size} tensors")
    message = tensor.contiguous()
    rooms = {}
    batch = []
    for peer in range(size):
        if peer != rank:
            like = outputs[peer] if rank == root else tensor
            rooms[peer] = torch.empty_like(like, memory_format=torch.contiguous_format)
            batch.append(dist.P2POp(dist.irecv, rooms[peer], group=group, group_peer=peer))
            batch.append(dist.P2POp(dist.isend, message, group=group, group_peer=peer))
    for work in dist.batch_isend_irecv(batch) if batch else ():
        work.wait()
    if rank == root:
        outputs[rank].copy_(tensor)
        for peer, room in rooms.items():
            outputs[peer].copy_(room)
