"""Pops the root's own tensor off the caller's list."""

import torch.distributed as dist

TASK = "a1.scatter"
EXPECT = {
    "status": "failed",
    "check": "gives each rank its tensor",
    "cause": "the list itself was changed",
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
    output.copy_(inputs.pop(root))
    peers = [peer for peer in range(size) if peer != root]
    for peer, tensor in zip(peers, inputs, strict=True):
        dist.send(tensor.contiguous(), group=group, group_dst=peer)
