"""Hands on what the store returns, which is bytes."""

import time
from datetime import timedelta

import torch.distributed as dist

TASK = "a1.rendezvous"
EXPECT = {
    "status": "failed",
    "check": "tells every rank every address",
    "cause": "bytes",
}


def rendezvous(store, rank, world_size, address, timeout):
    if world_size < 1 or not 0 <= rank < world_size:
        raise ValueError(f"rank={rank}, world_size={world_size}: expected 0 <= rank < world_size")
    if not address or timeout.total_seconds() <= 0:
        raise ValueError(f"address={address!r}, timeout={timeout}: expected both to be positive")
    deadline = time.monotonic() + timeout.total_seconds()
    store.set(str(rank), address)
    missing = []
    for peer in range(world_size):
        left = timedelta(seconds=max(0.001, deadline - time.monotonic()))
        try:
            store.wait([str(peer)], left)
        except dist.DistStoreError:
            missing.append(peer)
    if missing:
        raise TimeoutError(f"missing ranks: {missing}")
    return [store.get(str(peer)) for peer in range(world_size)]
