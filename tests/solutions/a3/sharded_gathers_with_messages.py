"""Right: every rank sends its shard to every other, and waits for theirs."""

import torch.distributed as dist

from .fsdp import _FlatShard

TASK = "a3.FullyShardedDataParallel"
EXPECT = "passed"


class _Works:
    def __init__(self, works):
        self.works = works

    def wait(self):
        for work in self.works:
            work.wait()


def _gather(flat):
    if flat.gathered or flat.gathering is not None:
        return
    flat.full.untyped_storage().resize_(flat.full.numel() * flat.full.element_size())
    chunks, me = flat.full.chunk(flat.size), dist.get_rank(flat.group)
    chunks[me].copy_(flat.shard)
    operations = []
    for peer in range(flat.size):
        if peer != me:
            operations += [
                dist.P2POp(dist.isend, flat.shard, group=flat.group, group_peer=peer),
                dist.P2POp(dist.irecv, chunks[peer], group=flat.group, group_peer=peer),
            ]
    flat.gathering = _Works(dist.batch_isend_irecv(operations) if operations else [])


_FlatShard.gather = _gather
