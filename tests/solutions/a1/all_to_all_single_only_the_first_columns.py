"""Takes the tensors for one-dimensional: sizes count elements of the flattened input."""

import torch.distributed as dist

TASK = "a1.all_to_all_single"
EXPECT = {
    "status": "failed",
    "check": "sends every slice to its rank",
    "cause": "rows",
}


def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    out_sizes = output_split_sizes or [output.size(0) // size] * size
    in_sizes = input_split_sizes or [input.size(0) // size] * size
    flat = input.contiguous().view(-1)
    result = output.contiguous().view(-1)
    batch = []
    for peer in range(size):
        first, room = sum(in_sizes[:peer]), sum(out_sizes[:peer])
        part = flat[first : first + in_sizes[peer]]
        room = result[room : room + out_sizes[peer]]
        if peer == rank:
            room.copy_(part)
            continue
        if room.numel():
            batch.append(dist.P2POp(dist.irecv, room, group=group, group_peer=peer))
        if part.numel():
            batch.append(dist.P2POp(dist.isend, part, group=group, group_peer=peer))
    for work in dist.batch_isend_irecv(batch) if batch else ():
        work.wait()
    output.copy_(result.view(output.shape))
