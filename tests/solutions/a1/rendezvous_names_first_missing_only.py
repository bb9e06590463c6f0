"""Gives up at the first rank that is missing and names no other."""

import time
from datetime import timedelta

import torch.distributed as dist

TASK = "a1.rendezvous"
EXPECT = {
    "status": "failed",
    "check": "names exactly the missing ranks",
    "cause": "stopped at the first missing rank",
}


def rendezvous(store, rank, world_size, address, timeout):
    if world_size < 1 or not 0 <= rank < world_size:
        raise ValueError(f"rank={rank}, world_size={world_size}: expected 0 <= rank < world_size")
    if not address or timeout.total_seconds() <= 0:
        raise ValueError(f"address={address!r}, timeout={timeout}: expected both to be positive")
    deadline = time.monotonic() + timeout.total_seconds()
    store.set(f"address/{rank}", address)
    addresses = []
    for peer in range(world_size):
        left = timedelta(seconds=max(0.001, deadline - time.monotonic()))
        try:
            store.wait([f"address/{peer}"], left)
        except dist.DistStoreError as error:
            raise TimeoutError(f"rank {peer} did not come within {timeout}") from error
        addresses.append(store.get(f"address/{peer}").decode())
    return addresses
