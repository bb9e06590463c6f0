"""Local SGD in the style of torch's distributed examples: blocking calls, helper module, ring."""

import argparse
from collections.abc import Iterator

import averaging  # a module beside the script
import torch
import torch.distributed as dist
from torch import nn


def batches(rank: int, steps: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        inputs = torch.randn(16, 10, generator=generator)
        yield inputs, (inputs[:, :1] > 0).float()


def run(rank: int, size: int, steps: int) -> None:
    torch.manual_seed(0)
    model = nn.Linear(10, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step, (inputs, targets) in enumerate(batches(rank, steps)):
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(model(inputs), targets)
        loss.backward()
        optimizer.step()
        if step % 2 == 1:
            averaging.average_parameters(model)
    print(f"rank {rank} of {size}: loss {loss.item():.4f}, {averaging.calls} averagings")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=6)
    args = parser.parse_args()
    dist.init_process_group(backend="gloo", init_method="env://")
    run(dist.get_rank(), dist.get_world_size(), args.steps)
    dist.destroy_process_group()
