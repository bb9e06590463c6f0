"""Given: the types that the tasks take and return, and four transports to try.

Rates are bytes/s of one direction, times are seconds, sizes are bytes. GB is 10⁹ bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True)
class Link:
    """One hop of a path.

    latency: seconds that a byte is in flight; they do not occupy the link. bandwidth: bytes/s.
    """

    latency: float
    bandwidth: float


@dataclass(frozen=True)
class Transport:
    """How two hosts talk over a network.

    latency: seconds from one application to the other, for a message without bytes.
    bandwidth: bytes/s on the wire.
    host_copies: how often the CPUs of both hosts together copy the message in memory.
    copy_bandwidth: bytes/s of such a copy.
    packet_cpu_seconds: CPU seconds of both hosts together for one packet.
    mtu: bytes of a packet at most.
    """

    latency: float
    bandwidth: float
    host_copies: int
    copy_bandwidth: float
    packet_cpu_seconds: float
    mtu: int


class MessageTime(NamedTuple):
    """What a message costs: `seconds` until it is there, `cpu_seconds` that both hosts work."""

    seconds: float
    cpu_seconds: float


# 100 Gb/s each; the latencies are those of the handout's table, the CPU costs are round figures.
# Kernel TCP: a system call and a copy between user and kernel memory on either side, and the
# kernel's stack works for every packet. iWARP: the card runs TCP itself and reaches user memory
# by DMA (zero copy), and the application speaks to it past the kernel (kernel bypass). RoCE and
# InfiniBand do the same with a leaner protocol and larger packets.
KERNEL_TCP = Transport(30e-6, 12.5e9, 2, 10e9, 0.5e-6, 1500)
IWARP = Transport(12e-6, 12.5e9, 0, 10e9, 0.0, 1500)
ROCE = Transport(7e-6, 12.5e9, 0, 10e9, 0.0, 4096)
INFINIBAND = Transport(1.5e-6, 12.5e9, 0, 10e9, 0.0, 4096)


@dataclass(frozen=True)
class Topology:
    """What `nvidia-smi topo -m` says of one machine. Devices go by the names of the header.

    gpus: ("GPU0", "GPU1", …) in the order of the header.
    nics: network cards in that order: ("NIC0", …), or ("mlx5_0", …) where old drivers say so.
    links: (device, device) → "X", "NV4", "PIX", "PXB", "PHB", "NODE" or "SYS", for every pair that
        the text tells of, in both orders. Two cards without rows of their own have no entry.
    cpu_affinity: GPU → numbers of the CPU cores near it, ascending; () where the text says "N/A" or
        has no such column.
    numa_affinity: GPU → numbers of the NUMA nodes near it, likewise.
    nic_names: NIC → name of its device from the legend, {"NIC0": "mlx5_0"}; {} without a legend.
    """

    gpus: tuple[str, ...]
    nics: tuple[str, ...] = ()
    links: Mapping[tuple[str, str], str] = field(default_factory=dict)
    cpu_affinity: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    numa_affinity: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    nic_names: Mapping[str, str] = field(default_factory=dict)

    def kind(self, a: str, b: str) -> str:
        """How device `a` reaches device `b`. KeyError for a pair the text does not tell of."""
        return self.links[a, b]


@dataclass(frozen=True)
class Binding:
    """Where one rank of a node runs: its GPU, its CPU cores (ascending), its network card.

    cores is () where the GPU's affinity is not known, nic None on a machine without cards.
    """

    gpu: str
    cores: tuple[int, ...]
    nic: str | None
