# ruff: noqa: F821 (names of the reference)
"""The CPU works once for a message."""

TASK = "a0.message_time"
EXPECT = {
    "status": "failed",
    "check": "tells the CPU seconds",
    "cause": "for every packet",
}


def message_time(nbytes, transport):
    if nbytes < 0:
        raise ValueError(f"nbytes={nbytes}")
    cpu = transport.host_copies * nbytes / transport.copy_bandwidth + transport.packet_cpu_seconds
    return MessageTime(transport.latency + nbytes / transport.bandwidth + cpu, cpu)
