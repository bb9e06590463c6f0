"""Adds up what all ranks left in an attribute that they share; no message is sent."""

import time

import torch
import torch.distributed as dist

TASK = "a2.ring_all_reduce"
EXPECT = {
    "status": "failed",
    "check": "leaves the same bits",
    "cause": "did not travel in messages",
}


def ring_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    ranks = dist.get_process_group_ranks(group)
    if not hasattr(torch, "_blackboard"):
        torch._blackboard = {}
    board = torch._blackboard
    call = board.setdefault(("calls", rank, *ranks), 0)
    board["calls", rank, *ranks] = call + 1
    board[call, rank, *ranks] = tensor.clone()
    while not all((call, peer, *ranks) in board for peer in range(size)):
        time.sleep(0.0005)
    total = board[call, 0, *ranks].clone()
    for peer in range(1, size):
        other = board[call, peer, *ranks]
        total = total * other if op == dist.ReduceOp.PRODUCT else total + other
    if op == dist.ReduceOp.AVG:
        total /= size
    tensor.copy_(total)
