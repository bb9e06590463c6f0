"""Adds up what all ranks left in an attribute; messages go out from rank 0 only."""

import time

import torch
import torch.distributed as dist

TASK = "a1.all_reduce_pairwise"
EXPECT = {
    "status": "failed",
    "check": "reduces into every rank's tensor",
    "cause": "did not travel in messages",
}


def all_reduce_pairwise(tensor, op=dist.ReduceOp.SUM, group=None):
    rank, size = place(group)  # noqa: F821  of the module that this is appended to
    check_op(op, tensor.dtype)  # noqa: F821
    ranks = dist.get_process_group_ranks(group)
    if not hasattr(torch, "_blackboard"):
        torch._blackboard = {}
    board = torch._blackboard
    call = board.setdefault(("calls", rank, *ranks), 0)
    board["calls", rank, *ranks] = call + 1
    board[call, rank, *ranks] = tensor.clone()
    while not all((call, peer, *ranks) in board for peer in range(size)):
        time.sleep(0.0005)
    if rank == 0:
        for peer in range(1, size):
            dist.send(torch.zeros(1), group=group, group_dst=peer)
    else:
        dist.recv(torch.zeros(1), group=group, group_src=0)
    total = board[call, 0, *ranks].clone()
    for peer in range(1, size):
        combine(total, board[call, peer, *ranks], op)  # noqa: F821
    if op == dist.ReduceOp.AVG:
        total /= size
    tensor.copy_(total)
