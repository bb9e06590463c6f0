"""Reads the others' addresses before it writes its own: everybody waits for everybody."""

import torch.distributed as dist

TASK = "a1.rendezvous"
EXPECT = {
    "status": "failed",
    "check": "tells every rank every address",
    "cause": "before it writes its own",
}


def rendezvous(store, rank, world_size, address, timeout):
    others = [peer for peer in range(world_size) if peer != rank]
    try:
        store.wait([f"address/{peer}" for peer in others], timeout)
    except dist.DistStoreError as error:
        raise TimeoutError(f"not all of the ranks {others} came within {timeout}") from error
    store.set(f"address/{rank}", address)
    return [store.get(f"address/{peer}").decode() for peer in range(world_size)]
