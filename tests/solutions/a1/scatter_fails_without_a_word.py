"""Any wrong argument ends in whatever exception Python comes up with."""

import torch.distributed as dist

TASK = "a1.scatter"
EXPECT = {
    "status": "failed",
    "check": "refuses",
    "cause": "is not checked",
}


def scatter(output, inputs, src, group=None):
    ranks = dist.get_process_group_ranks(group)
    root = ranks.index(src) if src in ranks else ranks[src]
    if dist.get_rank() != src:
        room = output.contiguous()
        dist.recv(room, group=group, group_src=root)
        output.copy_(room)
        return
    for peer in range(len(ranks)):
        if peer != root:
            dist.send(inputs[peer].contiguous(), group=group, group_dst=peer)
    output.copy_(inputs[root])
