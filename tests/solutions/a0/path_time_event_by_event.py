"""Right: a table of when each chunk leaves each hop."""

TASK = "a0.path_time"
EXPECT = "passed"


def path_time(nbytes, hops, chunk_bytes=None):
    if nbytes < 0 or (chunk_bytes is not None and chunk_bytes < 1):
        raise ValueError(f"nbytes={nbytes}, chunk_bytes={chunk_bytes}")
    sizes = [nbytes]
    if chunk_bytes is not None:
        full, rest = divmod(nbytes, chunk_bytes)
        sizes = [chunk_bytes] * full + [rest] * bool(rest or not full)
    arrive = [0.0] * len(sizes)
    for hop in hops:
        leave = 0.0
        for i, size in enumerate(sizes):
            leave = max(leave, arrive[i]) + size / hop.bandwidth
            arrive[i] = leave + hop.latency
    return arrive[-1]
