"""Numbers the ranks as they come, so that the list is in order of arrival."""

import time
from datetime import timedelta

TASK = "a1.rendezvous"
EXPECT = {
    "status": "failed",
    "check": "tells every rank every address",
    "cause": "order of arrival",
}


def rendezvous(store, rank, world_size, address, timeout):
    deadline = time.monotonic() + timeout.total_seconds()
    place = store.add("arrived", 1) - 1
    store.set(f"address/{place}", address)
    addresses = []
    for peer in range(world_size):
        left = timedelta(seconds=max(0.001, deadline - time.monotonic()))
        store.wait([f"address/{peer}"], left)
        addresses.append(store.get(f"address/{peer}").decode())
    return addresses
