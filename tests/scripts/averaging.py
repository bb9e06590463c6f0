"""Averages a model's parameters around a ring, with send and recv."""

import torch
import torch.distributed as dist
from torch import nn

calls = 0


def average_parameters(model: nn.Module) -> None:
    global calls
    calls += 1
    for parameter in model.parameters():
        with torch.no_grad():
            ring_sum(parameter.data)
            parameter /= dist.get_world_size()


def ring_sum(tensor: torch.Tensor) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    passing = tensor.clone()
    for _ in range(size - 1):
        arriving = torch.empty_like(passing)
        request = dist.isend(passing, (rank + 1) % size)
        dist.recv(arriving, (rank - 1) % size)
        request.wait()
        tensor += arriving
        passing = arriving
