"""The root serves all the others and forgets itself."""

import torch.distributed as dist

TASK = "a1.scatter"
EXPECT = {
    "status": "failed",
    "check": "gives each rank its tensor",
    "cause": "the root",
}


def scatter(output, inputs, src, group=None):
    ranks = dist.get_process_group_ranks(group)
    if src not in ranks:
        raise ValueError(f"src={src} is not one of {ranks}")
    rank, size, root = dist.get_rank(group), len(ranks), ranks.index(src)
    if rank != root:
        room = output.contiguous()
        dist.recv(room, group=group, group_src=root)
        output.copy_(room)
        return
    if inputs is None or len(inputs) != size:
        raise ValueError(f"inputs={inputs}: expected {size} tensors")
    for peer in range(size):
        if peer != root:
            dist.send(inputs[peer].contiguous(), group=group, group_dst=peer)
