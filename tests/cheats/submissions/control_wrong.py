# ruff: noqa
"""An honest mistake: only the root's first element is sent."""

TASK = "a1.broadcast"
SEEN = "element|expected|rank"
QUICK = True


# BEGIN SUBMISSION
def broadcast(tensor, src, group=None):
    one = tensor.flatten()[:1].clone()
    ranks = dist.get_process_group_ranks(group or dist.group.WORLD)
    if dist.get_rank() == src:
        for rank in ranks:
            if rank != src:
                dist.send(one, rank, group=group)
    else:
        dist.recv(one, src, group=group)
        tensor.flatten()[:1] = one
