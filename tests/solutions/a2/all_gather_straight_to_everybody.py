"""One round: every rank sends its tensor to all others."""

import torch
import torch.distributed as dist

TASK = "a2.ring_all_gather"
EXPECT = {
    "status": "failed",
    "check": "sends to the next rank only",
    "cause": "do not travel around a ring",
}


def ring_all_gather(output, tensor, group=None):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    _check_shapes(output, tensor, size)
    mine = tensor.contiguous()
    chunks = [mine if peer == rank else torch.empty_like(mine) for peer in range(size)]
    calls = []
    for peer in set(range(size)) - {rank}:
        calls.append(dist.P2POp(dist.isend, mine, group=group, group_peer=peer))
        calls.append(dist.P2POp(dist.irecv, chunks[peer], group=group, group_peer=peer))
    for work in dist.batch_isend_irecv(calls) if calls else []:
        work.wait()
    output.copy_(torch.cat(chunks))


def _check_shapes(whole, chunk, size):
    if whole.shape[0] != size * chunk.shape[0] or whole.shape[1:] != chunk.shape[1:]:
        raise ValueError(
            f"tensor {tuple(whole.shape)} is not {size} times output {tuple(chunk.shape)}"
        )
