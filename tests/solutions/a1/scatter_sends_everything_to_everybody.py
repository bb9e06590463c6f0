"""The root sends its whole list to every rank, which takes its own entry."""

import torch
import torch.distributed as dist

TASK = "a1.scatter"
EXPECT = {
    "status": "failed",
    "check": "sends each rank its own tensor and nothing else",
    "cause": "more than the others' tensors",
}


def scatter(output, inputs, src, group=None):
    ranks = dist.get_process_group_ranks(group)
    if src not in ranks:
        raise ValueError(f"src={src} is not one of {ranks}")
    rank, size, root = dist.get_rank(group), len(ranks), ranks.index(src)
    if rank == root:
        if inputs is None or len(inputs) != size:
            raise ValueError(f"inputs={inputs}: expected {size} tensors")
        counts = torch.tensor([each.numel() for each in inputs])
        everything = torch.cat([each.reshape(-1) for each in inputs])
        for peer in range(size):
            if peer != root:
                dist.send(counts, group=group, group_dst=peer)
                dist.send(everything, group=group, group_dst=peer)
        output.copy_(inputs[rank])
        return
    if inputs is not None:
        raise ValueError(f"inputs={inputs}: expected None")
    counts = torch.empty(size, dtype=torch.int64)
    dist.recv(counts, group=group, group_src=root)
    everything = torch.empty(int(counts.sum()), dtype=output.dtype)
    dist.recv(everything, group=group, group_src=root)
    output.copy_(everything.split(counts.tolist())[rank].view(output.shape))
