"""Posts all receives and copies its own tensor, but never waits for the others'."""

import torch.distributed as dist

TASK = "a1.gather"
EXPECT = {
    "status": "failed",
    "check": "collects every rank's tensor",
    "cause": "wait()",
}


def gather(tensor, outputs, dst, group=None):
    ranks = dist.get_process_group_ranks(group)
    if dst not in ranks:
        raise ValueError(f"dst={dst} is not one of {ranks}")
    if dist.get_rank() != dst:
        dist.send(tensor.contiguous(), dst, group)
        return
    if outputs is None or len(outputs) != len(ranks):
        raise ValueError(f"outputs={outputs}: expected {len(ranks)} tensors")
    for output, peer in zip(outputs, ranks, strict=True):
        if peer == dst:
            output.copy_(tensor)
        else:
            dist.irecv(output, peer, group)
