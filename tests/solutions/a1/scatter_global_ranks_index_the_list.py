"""Sends inputs[i] to the i-th smallest global rank: right in groups whose ranks are sorted."""

import torch.distributed as dist

TASK = "a1.scatter"
EXPECT = {
    "status": "failed",
    "check": "works in sub-groups",
    "cause": "group rank",
}


def scatter(output, inputs, src, group=None):
    ranks = dist.get_process_group_ranks(group)
    if src not in ranks:
        raise ValueError(f"src={src} is not one of {ranks}")
    if dist.get_rank() != src:
        room = output.contiguous()
        dist.recv(room, src, group)
        output.copy_(room)
        return
    if inputs is None or len(inputs) != len(ranks):
        raise ValueError(f"inputs={inputs}: expected {len(ranks)} tensors")
    for peer, tensor in zip(sorted(ranks), inputs, strict=True):
        if peer == src:
            output.copy_(tensor)
        else:
            dist.send(tensor.contiguous(), peer, group)
