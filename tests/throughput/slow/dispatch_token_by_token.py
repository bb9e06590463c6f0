"""Picks the tokens of every rank one by one, and lays the rows of every expert one by one."""

import torch
import torch.distributed as dist

from .dispatch import _exchanged
from .given import Dispatched

TASK = "a8.dispatch"
EXPECT = 0.2


def dispatch(tokens, indices, num_experts, group=None):
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    per_rank = num_experts // size
    chosen = indices.tolist()
    lists = [[] for _ in range(size)]
    for token, experts in enumerate(chosen):
        for owner in sorted({expert // per_rank for expert in experts}):
            lists[owner].append(token)
    counts = torch.tensor([len(each) for each in lists])
    arriving = torch.empty_like(counts)
    dist.all_to_all_single(arriving, counts, group=group)
    sent, received = counts.tolist(), arriving.tolist()
    outgoing = torch.stack([tokens[token] for each in lists for token in each])
    wanted = torch.stack([indices[token] for each in lists for token in each])
    incoming = _exchanged(outgoing, sent, received, group)
    wanted = _exchanged(wanted, sent, received, group)
    rows, expert_counts = [], []
    for expert in range(rank * per_rank, (rank + 1) * per_rank):
        mine = [row for row, experts in zip(incoming, wanted, strict=True) if expert in experts]
        rows += mine
        expert_counts.append(len(mine))
    return Dispatched(torch.stack(rows), torch.tensor(expert_counts), None)
