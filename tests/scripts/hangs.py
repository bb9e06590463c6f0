"""A script with a fault: every rank sends first."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
dist.send(torch.ones(4), (rank + 1) % size)
dist.recv(torch.empty(4), (rank - 1) % size)
