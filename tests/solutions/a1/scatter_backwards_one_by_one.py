"""Right: serves the ranks in descending order with blocking sends, its own tensor in between."""

import torch
import torch.distributed as dist

TASK = "a1.scatter"
EXPECT = "passed"


def scatter(output, inputs, src, group=None):
    ranks = dist.get_process_group_ranks(group)
    if src not in ranks:
        raise ValueError(f"src={src} is not one of {ranks}")
    me, size = ranks.index(dist.get_rank()), len(ranks)
    if dist.get_rank() != src:
        if inputs is not None:
            raise ValueError(f"inputs={inputs}: expected None, this rank is not src={src}")
        room = output.detach().clone(memory_format=torch.contiguous_format)
        dist.recv(room, src, group)
        output.detach().copy_(room)
        return
    if inputs is None or len(inputs) != size:
        count = 0 if inputs is None else len(inputs)
        raise ValueError(f"inputs has {count} tensors, expected {size}")
    if inputs[me].shape != output.shape or any(each.dtype != output.dtype for each in inputs):
        own = inputs[me]
        raise ValueError(
            f"inputs[{me}] is {own.dtype} {tuple(own.shape)}, expected as output: "
            f"{output.dtype} {tuple(output.shape)}"
        )
    for peer in reversed(range(size)):
        if peer == me:
            output.detach().copy_(inputs[peer])
        else:
            dist.send(inputs[peer].contiguous(), ranks[peer], group)
