"""Waits the whole timeout again for every missing rank."""

import torch.distributed as dist

TASK = "a1.rendezvous"
EXPECT = {
    "status": "failed",
    "check": "spends its timeout once",
    "cause": "every missing rank gets the whole timeout again",
}


def rendezvous(store, rank, world_size, address, timeout):
    if world_size < 1 or not 0 <= rank < world_size:
        raise ValueError(f"rank={rank}, world_size={world_size}: expected 0 <= rank < world_size")
    if not address or timeout.total_seconds() <= 0:
        raise ValueError(f"address={address!r}, timeout={timeout}: expected both to be positive")
    store.set(f"address/{rank}", address)
    missing = []
    for peer in range(world_size):
        try:
            store.wait([f"address/{peer}"], timeout)
        except dist.DistStoreError:
            missing.append(peer)
    if missing:
        raise TimeoutError(f"missing ranks: {missing}")
    return [store.get(f"address/{peer}").decode() for peer in range(world_size)]
