"""Takes dst, a global rank, for a group rank."""

import torch.distributed as dist

TASK = "a1.gather"
EXPECT = {
    "status": "error",
    "check": "works in sub-groups",
    "cause": "group rank",
}


def gather(tensor, outputs, dst, group=None):
    ranks = dist.get_process_group_ranks(group)
    if dst not in ranks:
        raise ValueError(f"dst={dst} is not one of {ranks}")
    rank, size = dist.get_rank(group), len(ranks)
    if rank != dst:
        dist.send(tensor.contiguous(), group=group, group_dst=dst)
        return
    if outputs is None or len(outputs) != size:
        raise ValueError(f"outputs={outputs}: expected {size} tensors")
    for peer in range(size):
        room = outputs[peer].contiguous()
        if peer == rank:
            room = tensor
        else:
            dist.recv(room, group=group, group_src=peer)
        outputs[peer].copy_(room)
