"""One machine: reading what `nvidia-smi topo -m` prints, placing ranks, finding a ring of GPUs.

Sources: the legend that `nvidia-smi topo -m` prints below its matrix; Harvey, Ladner, Lovász and
Tamir, "Semi-matchings for bipartite graphs and load balancing", 2003 (NICs); Held and Karp, "A
dynamic programming approach to sequencing problems", 1962 (the ring); Jeaugey, "NCCL 2.0", 2017
(why rings follow the topology).
"""

from __future__ import annotations

from .given import Binding, Topology


def parse_topology(text: str) -> Topology:
    """Read what `nvidia-smi topo -m` printed.

    The matrix: a header that names GPUs, then network cards (NICs), then the columns "CPU
    Affinity", "NUMA Affinity" and "GPU NUMA ID" as far as the driver has them; a row for each
    device. What people paste is messy, and all of this must be read:

    - cells parted by tabs or by blanks; ANSI codes (drivers underline the header); CRLF;
    - a preamble (a prompt, warnings), and anything after the matrix; no legend;
    - no NUMA column, or no CPU column; lists such as "0-23,48-71" and "0-1"; "N/A";
    - NICs with columns and without rows; cards called "NIC0" or, by old drivers, "mlx5_0";
    - lines glued to the one before ("…\\tN/AGPU1\\tNV2…"), or wrapped into several; 1 GPU, 16 GPUs.

    Args:
        text: the output, as it is.

    Returns:
        Topology; see there.

    Raises:
        ValueError: no matrix, or one that was cut off or damaged: a GPU's row is missing or has too
            few cells. The message holds "line N" (from 1) of the row that is wrong or, where one is
            missing, of the row it should stand before or of the last one. Missing or half NIC rows
            are no error.

    Source: the legend of `nvidia-smi topo -m`.
    """
    raise NotImplementedError("a0.parse_topology")


def bind_ranks(topology: Topology, local_world_size: int) -> list[Binding]:
    """Where each rank of this node runs: local rank r on the r-th GPU of the topology.

    - Cores: those of the GPU's CPU affinity. Ranks whose GPUs have the same affinity share its
      cores evenly: all are given away, no two ranks get the same one, and no rank has two more
      than another. Where there are fewer cores than ranks, each rank gets one, and no core serves
      two ranks more than another.
    - NIC: one of the nearest to the GPU (PIX, PXB, PHB, NODE, SYS, near to far), never a farther
      one; among those so chosen that ranks are spread over the NICs as evenly as can be.

    Args:
        topology: of the node.
        local_world_size: ranks on this node, at least 1.

    Returns:
        One `Binding` per local rank.

    Raises:
        ValueError: `local_world_size` below 1, or above the number of GPUs; the message holds both
            numbers.

    Source: the options that MPI launchers offer for binding; Harvey et al. 2003.
    """
    raise NotImplementedError("a0.bind_ranks")


def best_ring(topology: Topology) -> list[int]:
    """The best order of the GPUs for a ring, as GPU numbers ("GPU3" is 3).

    Links are compared by kind: NV# by its count, above PIX > PXB > PHB > NODE > SYS. The best ring
    is the one whose slowest link is as fast as can be; among those, with the fewest links of that
    kind; among those, the smallest sequence. It begins with the lowest GPU number and closes from
    the last to the first; of its two directions the smaller sequence counts.

    Args:
        topology: of the machine; its links are the same in both directions. Up to 16 GPUs take
            seconds at most.

    Returns:
        Every GPU's number once. One GPU is a ring of its own.

    Source: Held and Karp 1962; Jeaugey 2017.
    """
    raise NotImplementedError("a0.best_ring")
