"""Hands the root's tensor over through an attribute that all ranks see; no message is sent."""

import time

import torch
import torch.distributed as dist

TASK = "a1.broadcast"
EXPECT = {
    "status": "failed",
    "check": "copies the root's tensor",
    "cause": "did not travel in messages",
}


def broadcast(tensor, src, group=None):
    ranks = dist.get_process_group_ranks(group)
    if src not in ranks:
        raise ValueError(f"src={src} is not one of {ranks}")
    if not hasattr(torch, "_blackboard"):
        torch._blackboard = {}
    board, me = torch._blackboard, dist.get_rank()
    call = board.setdefault(("calls", me, *ranks), 0)
    board["calls", me, *ranks] = call + 1
    if me == src:
        board[call, *ranks] = tensor.clone()
    while (call, *ranks) not in board:
        time.sleep(0.0005)
    tensor.copy_(board[call, *ranks])
