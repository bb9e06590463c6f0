"""Right: asks again and again whether the keys are there, and never waits in the store."""

import time

TASK = "a1.rendezvous"
EXPECT = "passed"


def rendezvous(store, rank, world_size, address, timeout):
    if world_size < 1:
        raise ValueError(f"world_size is {world_size}, expected 1 or more")
    if not 0 <= rank < world_size:
        raise ValueError(f"rank is {rank}, expected a number below world_size = {world_size}")
    if not address:
        raise ValueError(f"address is {address!r}, expected a name")
    if timeout.total_seconds() <= 0:
        raise ValueError(f"timeout is {timeout}, expected more than 0 seconds")
    end = time.monotonic() + timeout.total_seconds()
    store.set(f"rank-{rank}", address)
    missing = set(range(world_size))
    while missing:
        missing = {peer for peer in missing if not store.check([f"rank-{peer}"])}
        if missing and time.monotonic() > end:
            raise TimeoutError(f"still missing: {sorted(missing)}")
        time.sleep(0.001)
    return [store.get(f"rank-{peer}").decode() for peer in range(world_size)]
