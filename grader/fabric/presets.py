"""Clusters that exist, and where every number comes from.

Bandwidths are what programs get, not what is written on the wire: a preset's few constants are
fitted to one published measurement each; `tests/fabric/test_presets.py` predicts others and says
how far off that is. Latencies are of a message from GPU to GPU. Rates are bytes/s of one direction.

Sources, by the marks used below:

[NVLink]  NVIDIA's whitepapers: A100 12 × 25, H100 18 × 25, B200 18 × 50 GB/s per direction.
[PCIe]    PCI Express Base Specification 4.0: 16 lanes × 16 GT/s × 128/130 ÷ 8 = 31.5 GB/s.
[IB]      InfiniBand Trade Association: HDR 4x 200, NDR 4x 400 Gb/s: 25 and 50 GB/s; 1 to 2 µs end
          to end.
[LAT]     GPU to GPU over NVLink about 3 µs, staged through the host about 24 µs (A100).
[A100]    nccl-tests, 8 × A100 at NVSwitches, all-reduce of 16 GiB: 128.0 ms, busbw 234.9 GB/s.
[H100]    NVIDIA/nccl-tests #212, the authors of NCCL: protocols leave 370 of 450 GB/s to rings;
          with the switch adding (NVLS) 8 GPUs reach algbw 275, busbw 480 GB/s.
[NIC]     NVIDIA/nccl-tests #290, the same: 46 to 48 GB/s of an NDR card. HDR: #119, 24 GPUs with 4
          cards per node, 96 of 100 GB/s per node.
[GB200]   coreweave/nccl-tests #43, one rack of 72 GPUs, all-reduce of 8 GiB: 20.30 ms, busbw
          834.6 GB/s (the switch adds). NVLink between two GPUs: about 770 GB/s
          (Azure/AI-benchmarking-guide #7, nvbandwidth).
[DSv3]    DeepSeek-V3 Technical Report, 2024, section 3.2: NVLink 160, InfiniBand 50 GB/s a GPU.
[POD]     NVIDIA DGX SuperPOD reference architectures (A100, H100): rail-optimized, 20 and 32 nodes
          in a scalable unit, a leaf per card number, full bisection above.
[FLOPS]   Dense 16-bit matrix rates and memory bandwidths of the data sheets, in TFLOP/s and TB/s:
          A100 80 GB 312, 2.039; H100 SXM 989.4, 3.35; B200 in GB200 2,500, 8; RTX 4090 165.2 (sums
          in fp32), 1.008.
[EST]     Our estimate, from the parts' data sheets; nobody's measurement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from grader.fabric.cluster import Cluster, uniform
from grader.fabric.topology import LinkSpec, Network, PcieTree

GB = 1e9
MICRO = 1e-6


def fitted_ring(seconds: float, nbytes: float, ranks: int, latency: float) -> float:
    """The bandwidth with which a ring all-reduce takes `seconds`: bytes/s of a port."""
    steps = 2 * (ranks - 1)
    return steps / ranks * nbytes / (seconds - steps * latency)


def fitted_in_network(seconds: float, nbytes: float, latency: float) -> float:
    """The bandwidth with which an all-reduce in the switch takes `seconds`: bytes/s of a port."""
    return nbytes / (seconds - 2 * latency)


def _uniform(devices: int, _nodes: int) -> Cluster:
    return uniform(devices, latency=5 * MICRO, bandwidth=50 * GB)


def _pcie_4090x8(_devices: int, nodes: int) -> Cluster:
    """8 RTX 4090 on two sockets, two below a PCIe switch, no peer-to-peer, one 100 Gb/s card."""
    return Cluster(
        "pcie-4090x8",
        nodes,
        8,
        # [PCIe]; about 80 % of the wire is left by packet headers and copy engines [EST].
        intra=LinkSpec(3 * MICRO, 25 * GB),
        # 100 Gb/s RoCE: 12.5 GB/s on the wire, 92 % of it; 5 µs, the lower end for 100G RoCE.
        inter=LinkSpec(5 * MICRO, 11.5 * GB),
        nics_per_node=1,
        flops=165.2e12,
        memory_bandwidth=1.008e12,
        tree=PcieTree(
            numa_nodes=2,
            switches=2,
            uplink=LinkSpec(0.3 * MICRO, 25 * GB),  # x16 as well; latency [EST]
            # Two links of 10.4 GT/s between sockets carry 41.6 GB/s [EST].
            socket=LinkSpec(0.5 * MICRO, 40 * GB),
            # Staged 24 µs in all [LAT]. Eight channels DDR4-3200, 204.8 GB/s, in and out [EST].
            memory=LinkSpec(20 * MICRO, 80 * GB),
            staged=True,
        ),
    )


def _dgx_a100(_devices: int, nodes: int) -> Cluster:
    """8 A100 at NVSwitches, 8 HDR cards."""
    alpha = 3 * MICRO  # [LAT]
    return Cluster(
        "dgx-a100",
        nodes,
        8,
        intra=LinkSpec(alpha, fitted_ring(128.0e-3, 16 * 2**30, 8, alpha)),  # [A100]: 234.9 GB/s
        inter=LinkSpec(5 * MICRO, 24 * GB),  # [LAT] and [IB] together; [NIC]
        flops=312e12,
        memory_bandwidth=2.039e12,
        network=_rails(20, 24 * GB),
    )


def _dgx_h100(_devices: int, nodes: int) -> Cluster:
    """8 H100 at NVSwitches that can add, 8 NDR cards."""
    alpha = 3 * MICRO
    return Cluster(
        "dgx-h100",
        nodes,
        8,
        intra=LinkSpec(alpha, 370 * GB),  # [H100], ring
        inter=LinkSpec(5 * MICRO, 47 * GB),  # [NIC]
        flops=989.4e12,
        memory_bandwidth=3.35e12,
        switch_adds=True,
        adding_bandwidth=275 * GB,  # [H100], NVLS
        network=_rails(32, 47 * GB),
    )


def _h800_v3(_devices: int, nodes: int) -> Cluster:
    """DeepSeek-V3's machines: 8 H800 with half of the NVLinks, 8 NDR cards."""
    return Cluster(
        "h800-v3",
        nodes,
        8,
        intra=LinkSpec(3 * MICRO, 160 * GB),  # [DSv3]
        inter=LinkSpec(5 * MICRO, 50 * GB),  # [DSv3]
        flops=989.4e12,
        memory_bandwidth=3.35e12,
        network=_rails(32, 50 * GB),  # a two-level fat-tree for each card number [DSv3]
    )


def _gb200_nvl72(_devices: int, nodes: int) -> Cluster:
    """Racks of 72 B200 in one NVLink domain, an NDR card each. A rack is a node here."""
    alpha = 3 * MICRO
    return Cluster(
        "gb200-nvl72",
        nodes,
        72,
        intra=LinkSpec(alpha, 770 * GB),  # [GB200], between two GPUs
        inter=LinkSpec(5 * MICRO, 47 * GB),  # [NIC]
        flops=2500e12,
        memory_bandwidth=8e12,
        switch_adds=True,
        adding_bandwidth=fitted_in_network(20.299e-3, 8 * 2**30, alpha),  # [GB200]: 423 GB/s
        network=_rails(8, 47 * GB),
    )


def _rails(nodes_per_leaf: int, bandwidth: float) -> Network:
    """[POD]: full bisection above a leaf per card number; 0.5 µs a switch [EST]."""
    return Network(
        nodes_per_leaf, spines=nodes_per_leaf, uplink=LinkSpec(0.5 * MICRO, bandwidth), rails=True
    )


_MAKERS: dict[str, tuple[int, Callable[[int, int], Cluster]]] = {
    "uniform": (1, _uniform),
    "pcie-4090x8": (8, _pcie_4090x8),
    "dgx-a100": (8, _dgx_a100),
    "dgx-h100": (8, _dgx_h100),
    "h800-v3": (8, _h800_v3),
    "gb200-nvl72": (72, _gb200_nvl72),
}

#: Names that `preset` knows.
PRESETS = tuple(_MAKERS)


def preset(name: str, devices: int = 8) -> Cluster:
    """The cluster `name` with whole nodes for at least `devices` devices.

    "dgx-h100*4" has at least four nodes. "uniform" is one node of just so many devices. Raises
    ValueError for a name that is not known, and for counts below 1.
    """
    bare, star, count = name.partition("*")
    if bare not in _MAKERS:
        raise ValueError(f"unknown cluster {name!r}; known: {', '.join(PRESETS)}")
    if star and not (count.isdecimal() and int(count) > 0):
        raise ValueError(f"cluster {name!r}: expected a number of nodes after the *")
    if devices < 1:
        raise ValueError(f"a cluster needs at least 1 device, got {devices}")
    per_node, make = _MAKERS[bare]
    nodes = max(int(count or 1), -(-devices // per_node))
    return make(max(devices, int(count or 1)), nodes)


def one_card(cluster: Cluster) -> Cluster:
    """The same cluster with one network card per node."""
    return replace(cluster, nics_per_node=1)
