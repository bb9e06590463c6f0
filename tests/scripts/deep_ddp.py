"""DistributedDataParallel over a model deep enough for several buckets."""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group()
torch.manual_seed(0)
model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(8)])
model = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(64, 512)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
