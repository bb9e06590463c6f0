# ruff: noqa: F821 (names of the reference)
"""Right: counts the packets one by one."""

TASK = "a0.message_time"
EXPECT = "passed"


def message_time(nbytes, transport):
    if nbytes < 0:
        raise ValueError(f"a message of {nbytes} bytes")
    work = transport.packet_cpu_seconds * len(range(0, nbytes or 1, transport.mtu))
    for _ in range(transport.host_copies):
        work += nbytes / transport.copy_bandwidth
    total = sum((transport.latency, nbytes / transport.bandwidth, work))
    return MessageTime(cpu_seconds=work, seconds=total)
