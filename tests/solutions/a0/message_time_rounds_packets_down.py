# ruff: noqa: F821 (names of the reference)
"""The last, shorter packet is free."""

TASK = "a0.message_time"
EXPECT = {
    "status": "failed",
    "check": "counts packets",
    "cause": "last, shorter packet",
}


def message_time(nbytes, transport):
    if nbytes < 0:
        raise ValueError(f"nbytes={nbytes}")
    packets = max(1, nbytes // transport.mtu)
    cpu = transport.host_copies * nbytes / transport.copy_bandwidth
    cpu += packets * transport.packet_cpu_seconds
    return MessageTime(transport.latency + nbytes / transport.bandwidth + cpu, cpu)
