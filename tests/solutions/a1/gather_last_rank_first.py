"""Right: the root receives one tensor after the other, from the last rank to the first."""

import torch
import torch.distributed as dist

TASK = "a1.gather"
EXPECT = "passed"


def gather(tensor, outputs, dst, group=None):
    ranks = dist.get_process_group_ranks(group)
    if dst not in ranks:
        raise ValueError(f"dst={dst} is not one of {ranks}")
    me, size = ranks.index(dist.get_rank()), len(ranks)
    if dist.get_rank() != dst:
        if outputs is not None:
            raise ValueError(f"outputs={outputs}: expected None, this rank is not dst={dst}")
        dist.send(tensor.detach().contiguous(), dst, group)
        return
    if outputs is None or len(outputs) != size:
        count = 0 if outputs is None else len(outputs)
        raise ValueError(f"outputs has {count} tensors, expected {size}")
    if outputs[me].shape != tensor.shape or any(each.dtype != tensor.dtype for each in outputs):
        raise ValueError(
            f"outputs[{me}] is {outputs[me].dtype} {tuple(outputs[me].shape)}, expected as tensor: "
            f"{tensor.dtype} {tuple(tensor.shape)}"
        )
    for peer in reversed(range(size)):
        room = torch.empty_like(outputs[peer], memory_format=torch.contiguous_format)
        if peer == me:
            room = tensor
        else:
            dist.recv(room, ranks[peer], group)
        outputs[peer].detach().copy_(room)
