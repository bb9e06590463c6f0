"""How fast links are, and how long a message takes over them.

Sources: PCI Express Base Specification 1.0–7.0 (rates and codings per generation); NVIDIA's
whitepapers of P100, V100, A100, H100 and Blackwell (NVLink); Kurose and Ross, "Computer
Networking", chapter 1 (store and forward); the RDMA Consortium's and InfiniBand's specifications
(zero copy, kernel bypass).
"""

from __future__ import annotations

from collections.abc import Sequence

from .given import Link, MessageTime, Transport


def pcie_bandwidth(generation: int, lanes: int) -> float:
    """Bytes/s of a PCI Express link in one direction: lanes × GT/s × coding ÷ 8.

    A lane carries one bit per transfer. The coding is the share of bits that are data: 8b/10b in
    generations 1 and 2, 128b/130b in 3 to 5, FLIT (242 of 256 bytes) in 6 and 7, whose 64 and 128
    GT/s already count the two bits of a PAM4 symbol.

    Args:
        generation: 1 to 7.
        lanes: 1, 2, 4, 8 or 16.

    Raises:
        ValueError: another generation or number of lanes; the message holds the value.

    Source: PCI Express Base Specification, the chapters on the physical layer.
    """
    raise NotImplementedError("a0.pcie_bandwidth")


def nvlink_bandwidth(generation: int, links: int | None = None) -> float:
    """Bytes/s of a GPU's NVLinks in one direction (advertised figures count both).

    Args:
        generation: 1 (P100) to 5 (B200).
        links: how many of the GPU's links, 1 to all; `None`: all.

    Raises:
        ValueError: another generation, or a number of links the GPU does not have; the message
            holds the value.

    Source: NVIDIA's whitepapers of the P100, V100, A100, H100 and Blackwell.
    """
    raise NotImplementedError("a0.nvlink_bandwidth")


def path_time(nbytes: int, hops: Sequence[Link], chunk_bytes: int | None = None) -> float:
    """Seconds until the last byte of a message has crossed all hops, one after the other.

    Every hop stores what it gets and passes it on when it has all of it (store and forward): the
    whole message when `chunk_bytes` is None, else chunk by chunk, so that hops work at the same
    time. Chunks follow each other in order; a hop takes up the next when it has sent the one
    before. Latency is flight time: it delays a chunk and does not occupy the hop.

    Args:
        nbytes: size of the message, 0 or more. An empty message pays the latencies.
        hops: links in order. Without hops nothing travels: 0.
        chunk_bytes: size of a chunk, at least 1; the last chunk holds what is left.

    Raises:
        ValueError: `nbytes` below 0 or `chunk_bytes` below 1; the message holds the value.

    Source: Kurose and Ross, chapter 1; Hockney, "The communication challenge for MPP", 1994.
    """
    raise NotImplementedError("a0.path_time")


def message_time(nbytes: int, transport: Transport) -> MessageTime:
    """What one message costs in time, and in CPU seconds of both hosts together.

    The CPUs copy all bytes `host_copies` times and spend `packet_cpu_seconds` on each packet; a
    packet holds up to `mtu` bytes, and an empty message still is one packet. What a card does by
    DMA costs the CPUs nothing. Nothing overlaps: the message is there after the latency, its time
    on the wire and all that the CPUs do for it.

    Zero copy is `host_copies` = 0; a protocol that the card runs (kernel bypass) has
    `packet_cpu_seconds` = 0: the difference of two calls says what either saves.

    Args:
        nbytes: size of the message, 0 or more.
        transport: see `Transport`.

    Returns:
        MessageTime(seconds, cpu_seconds).

    Raises:
        ValueError: `nbytes` below 0; the message holds the value.

    Source: Recio et al., RFC 5040, 2007 (RDMA over TCP); InfiniBand Architecture Specification,
    volume 1; Guo et al., "RDMA over Commodity Ethernet at Scale", 2016 (CPU cost of TCP).
    """
    raise NotImplementedError("a0.message_time")
