"""A training script as people write it for torchrun: DistributedDataParallel on a small model."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=4)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    features = torch.randn(256, 32)
    data = TensorDataset(features, features.sum(dim=1, keepdim=True))
    sampler = DistributedSampler(data, shuffle=True, seed=1)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    torch.manual_seed(100 + rank)  # the wrapper must broadcast rank 0's parameters
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 1)), bucket_cap_mb=0.005
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step, (inputs, targets) in zip(range(options.steps), loader, strict=False):
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        if rank == 0:
            print(f"step {step} of {os.environ['WORLD_SIZE']} ranks: loss {mean.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
