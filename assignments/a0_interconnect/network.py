"""Networks as graphs: the three-tier tree, leaf and spine, the fat-tree, the torus.

Every node carries `kind`, "host" or "switch"; every edge carries `bandwidth` in bytes/s of one
direction. How nodes are named is free.

Sources: Al-Fares, Loukissas and Vahdat, "A scalable, commodity data center network architecture",
2008; Greenberg et al., "VL2", 2009; Dally and Towles, "Principles and practices of
interconnection networks", 2004 (torus); Leiserson, "Fat-trees", 1985.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import networkx as nx


def three_tier_tree(
    cores: int,
    aggregations: int,
    accesses_per_aggregation: int,
    hosts_per_access: int,
    bandwidth: float,
) -> nx.Graph:
    """The classical data-centre tree: core, aggregation and access switches, then hosts.

    Every aggregation switch is linked to every core switch, every access switch to its one
    aggregation switch, every host to its one access switch. All links have the same bandwidth, so
    access switches are oversubscribed `hosts_per_access` : 1.

    Args:
        cores, aggregations: switches of these two tiers.
        accesses_per_aggregation: access switches below each aggregation switch.
        hosts_per_access: hosts below each access switch.
        bandwidth: bytes/s of every link.

    Raises:
        ValueError: a count below 1 or a bandwidth that is not above 0; the message names it.

    Source: Al-Fares et al. 2008, section 2.1 (the design they replace).
    """
    raise NotImplementedError("a0.three_tier_tree")


def leaf_spine(
    leaves: int,
    spines: int,
    hosts_per_leaf: int,
    host_bandwidth: float,
    uplink_bandwidth: float,
) -> nx.Graph:
    """Two tiers: every leaf switch is linked to every spine switch, every host to its leaf.

    A leaf is oversubscribed hosts_per_leaf × host_bandwidth : spines × uplink_bandwidth.

    Args:
        leaves, spines: switches of the two tiers.
        hosts_per_leaf: hosts below each leaf.
        host_bandwidth: bytes/s between host and leaf.
        uplink_bandwidth: bytes/s between leaf and spine.

    Raises:
        ValueError: a count below 1 or a bandwidth that is not above 0; the message names it.

    Source: Greenberg et al. 2009; Alizadeh and Edsall, "On the data path performance of leaf-spine
    datacenter fabrics", 2013.
    """
    raise NotImplementedError("a0.leaf_spine")


def fat_tree(k: int, bandwidth: float) -> nx.Graph:
    """The fat-tree of k-port switches: k pods, k³/4 hosts, 5k²/4 switches, full bisection.

    A pod has k/2 edge and k/2 aggregation switches, each linked to each of the other kind; an edge
    switch has k/2 hosts. There are (k/2)² core switches, each linked to one aggregation switch of
    every pod: aggregation switch i of a pod to the core switches i·k/2 … i·k/2 + k/2 − 1.

    Args:
        k: ports of a switch, even, at least 2.
        bandwidth: bytes/s of every link.

    Raises:
        ValueError: k odd or below 2, or a bandwidth that is not above 0; the message names it.

    Source: Al-Fares et al. 2008, section 3.
    """
    raise NotImplementedError("a0.fat_tree")


def torus(sides: Sequence[int], bandwidth: float) -> nx.Graph:
    """The torus d₁ × … × d_D: hosts only, each linked to its neighbours in every dimension.

    Lines are closed to rings. A side of 2 has one link between its two hosts, not two; a side of 1
    has none.

    Args:
        sides: hosts in each dimension, at least one number, each at least 1.
        bandwidth: bytes/s of every link.

    Raises:
        ValueError: no sides, a side below 1, or a bandwidth that is not above 0; the message names
            it.

    Source: Dally and Towles 2004, chapter 5.
    """
    raise NotImplementedError("a0.torus")
