"""In every step each rank sends all chunks that it holds."""

import torch
import torch.distributed as dist

TASK = "a2.ring_all_gather"
EXPECT = {
    "status": "failed",
    "check": "sends n - 1 chunks in n - 1 rounds",
    "cause": "travels more than once",
}


def ring_all_gather(output, tensor, group=None):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    _check_shapes(output, tensor, size)
    held = [tensor.contiguous()]
    for _ in range(size - 1):
        held = [held[0], *_pass_on(torch.cat(held), group).tensor_split(len(held))]
    chunks = [held[(rank - place) % size] for place in range(size)]
    output.copy_(torch.cat(chunks))


def _check_shapes(whole, chunk, size):
    if whole.shape[0] != size * chunk.shape[0] or whole.shape[1:] != chunk.shape[1:]:
        raise ValueError(
            f"tensor {tuple(whole.shape)} is not {size} times output {tuple(chunk.shape)}"
        )


def _pass_on(message, group, room=None):
    """To the next rank; from the previous one."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    room = torch.empty_like(message) if room is None else room
    both = [
        dist.P2POp(dist.isend, message, group=group, group_peer=(rank + 1) % size),
        dist.P2POp(dist.irecv, room, group=group, group_peer=(rank - 1) % size),
    ]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    return room
