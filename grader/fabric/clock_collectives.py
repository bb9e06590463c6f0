"""Closed forms for whole collectives: their time on a cluster and the bytes each rank moves.

A collective of torch.distributed is one operation in a record; these are the costs of the usual
algorithm behind it [Thakur, Rabenseifner, Gropp 2005; Chan et al. 2007]. g ranks on each of k
nodes, p = g·k; α, β are latency and seconds per byte inside a node, α', β' between nodes (β' times
the ranks that share a NIC); n bytes are the whole vector. On one node k = 1 and the primed terms
vanish. A group with unequal shares per node counts as one node with the slowest link it uses.

    all_reduce      ring in the node, ring between nodes, ring in the node:
                    2(g−1)α + 2n(g−1)/g β + 2(k−1)α' + 2(n/g)(k−1)/k β'
                    where the node's switch adds, inside it 2α + nβ; where the switches between
                    the nodes add, there 2α' + (n/g)β'; where both do, the vector streams through
                    both: 2α + 2α' + max(nβ, (n/g)β'). Rings are taken where they are faster
    all_gather      ring, half of all_reduce; n = what everybody holds at the end; of uneven
                    contributions the largest sets the pace
    reduce_scatter  pairwise, half of all_reduce; n = a rank's whole input
    all_to_all      pairwise, stepwise: an α or α' for every other rank, plus the largest row or
                    column sum of bytes, each byte at its level's β (a rank's own share is free);
                    where routes share more than ports and cards, the time of the busiest link
    broadcast, reduce   binomial trees, over the nodes and in each: ⌈lg g⌉(α+nβ) + ⌈lg k⌉(α'+nβ')
                    with β' of one NIC
    gather, scatter the root's messages posted together: the larger latency, plus the time the
                    root's port or NIC is busy, whichever is longer
    barrier         dissemination: ⌈lg g⌉α + ⌈lg k⌉α'

One rank costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from grader.fabric.cluster import Cluster, Layout

#: The collectives that have a closed form.
COLLECTIVES = frozenset(
    {
        "all_gather",
        "all_reduce",
        "all_to_all",
        "barrier",
        "broadcast",
        "gather",
        "reduce",
        "reduce_scatter",
        "scatter",
    }
)

Splits = Sequence[Sequence[int]]


def collective_seconds(
    kind: str,
    members: Sequence[int],
    nbytes: Sequence[int],
    cluster: Cluster,
    root: int = -1,
    splits: Splits = (),
) -> float:
    """Seconds that a collective takes once all its ranks and ports are ready.

    members: global ranks in group order; nbytes[i]: bytes that members[i] contributes (its whole
    input); root: global rank; splits[i]: all_to_all, bytes from members[i] to each member, or
    empty for equal shares. Raises ValueError for a kind without a closed form.
    """
    if kind not in COLLECTIVES:
        raise ValueError(f"no closed form for {kind!r}; known: {', '.join(sorted(COLLECTIVES))}")
    size = len(members)
    if size == 1:
        return 0.0
    if kind == "all_to_all":
        return _all_to_all_seconds(members, nbytes, cluster, splits)
    if kind in ("gather", "scatter"):
        return _rooted_seconds(members, _rooted_shares(kind, members, nbytes, root), cluster, root)
    layout = cluster.layout(members)
    nodes, per_node, inner, outer, nic_share = layout
    total = max(nbytes)
    if kind in ("all_reduce", "all_gather", "reduce_scatter"):
        if kind == "all_gather":
            total *= size
        one_way = (per_node - 1) * (inner.latency + total / per_node / inner.bandwidth)
        share = total / per_node / nodes * nic_share
        one_way += (nodes - 1) * (outer.latency + share / outer.bandwidth)
        if kind == "all_reduce" and (cluster.switch_adds or cluster.network_adds):
            across = len({cluster.node_of(rank) for rank in members})
            if across == nodes:  # unequal shares know rings only
                return min(2 * one_way, _in_network_seconds(total, layout, cluster))
        return 2 * one_way if kind == "all_reduce" else one_way
    if kind == "barrier":
        total = 0
    inside, between = (per_node - 1).bit_length(), (nodes - 1).bit_length()
    return inside * (inner.latency + total / inner.bandwidth) + between * (
        outer.latency + total / outer.bandwidth
    )


def _in_network_seconds(total: int, layout: Layout, cluster: Cluster) -> float:
    """An all-reduce where switches add: inside the nodes, between them, or both."""
    nodes, per_node, inner, outer, nic_share = layout
    inside = between = latency = 0.0
    if per_node > 1 and cluster.switch_adds:
        latency += 2 * inner.latency
        inside = total / (cluster.adding_bandwidth or inner.bandwidth)
    elif per_node > 1:
        latency += 2 * (per_node - 1) * inner.latency
        inside = 2 * total * (per_node - 1) / per_node / inner.bandwidth
    share = total / per_node * nic_share
    if nodes > 1 and cluster.network_adds:
        latency += 2 * outer.latency
        between = share / cluster.inter.bandwidth
    elif nodes > 1:
        latency += 2 * (nodes - 1) * outer.latency
        between = 2 * share * (nodes - 1) / nodes / outer.bandwidth
    if cluster.switch_adds and cluster.network_adds:
        return latency + max(inside, between)
    return latency + inside + between


def collective_bytes(
    kind: str,
    members: Sequence[int],
    nbytes: Sequence[int],
    root: int = -1,
    splits: Splits = (),
) -> tuple[list[int], list[int]]:
    """Bytes that each member sends and receives, of the flat algorithms named above.

    Gather and scatter go straight between root and ranks, broadcast and reduce along a binomial
    tree, a barrier moves none. Fractions of a byte are rounded up. Arguments as for
    `collective_seconds`.
    """
    if kind not in COLLECTIVES:
        raise ValueError(f"no closed form for {kind!r}; known: {', '.join(sorted(COLLECTIVES))}")
    size = len(members)
    nothing = [0] * size
    if size == 1 or kind == "barrier":
        return nothing, nothing
    if kind == "all_to_all":
        table = _table(nbytes, splits)
        np.fill_diagonal(table, 0)
        return _ceil(table.sum(axis=1)), _ceil(table.sum(axis=0))
    if kind in ("all_reduce", "reduce_scatter"):
        times = 2 if kind == "all_reduce" else 1
        moved = [-(-times * (size - 1) * n // size) for n in nbytes]
        return moved, moved
    if kind == "all_gather":
        everything = sum(nbytes)
        sent = [everything - nbytes[(i + 1) % size] for i in range(size)]
        return sent, [everything - n for n in nbytes]
    at = members.index(root)
    if kind in ("gather", "scatter"):
        shares = _rooted_shares(kind, members, nbytes, root)
        many = [sum(shares) if i == at else 0 for i in range(size)]
        return (shares, many) if kind == "gather" else (many, shares)
    n = max(nbytes)
    one = [0 if i == at else n for i in range(size)]
    children = [n * _children((i - at) % size, size) for i in range(size)]
    return (children, one) if kind == "broadcast" else (one, children)


def _children(rank: int, size: int) -> int:
    """Children of a rank (relative to the root) in a binomial tree: rank + 2ʲ for 2ʲ > rank."""
    return sum(1 for j in range(rank.bit_length(), size.bit_length()) if rank + (1 << j) < size)


def _rooted_shares(
    kind: str, members: Sequence[int], nbytes: Sequence[int], root: int
) -> list[int]:
    """Bytes between the root and each member in a gather or scatter; none for the root itself."""
    if root not in members:
        raise ValueError(f"{kind} with root {root}, which is not one of the ranks {list(members)}")
    at = members.index(root)
    each = -(-nbytes[at] // len(members))
    shares = list(nbytes) if kind == "gather" else [each] * len(members)
    shares[at] = 0
    return shares


def _rooted_seconds(
    members: Sequence[int], shares: Sequence[int], cluster: Cluster, root: int
) -> float:
    here = cluster.node_of(root)
    inside = outside = 0
    latency = 0.0
    for rank, share in zip(members, shares, strict=True):
        if rank == root:
            continue
        if cluster.node_of(rank) == here:
            inside += share
            latency = max(latency, cluster.intra.latency)
        else:
            outside += share
            latency = max(latency, cluster.inter.latency)
    through_port = inside + outside if cluster.shared_port else inside
    return latency + max(through_port / cluster.intra.bandwidth, outside / cluster.inter.bandwidth)


def _all_to_all_seconds(
    members: Sequence[int], nbytes: Sequence[int], cluster: Cluster, splits: Splits
) -> float:
    layout = cluster.layout(members)
    table = _table(nbytes, splits)
    nodes = np.array([cluster.node_of(rank) for rank in members])
    near = nodes[:, None] == nodes[None, :]
    beta = np.where(near, 1 / cluster.intra.bandwidth, layout.nic_share / layout.outer.bandwidth)
    np.fill_diagonal(beta, 0.0)
    costs = table * beta
    neighbours = near.sum(axis=1)
    latency = (neighbours - 1) * cluster.intra.latency + (
        len(members) - neighbours
    ) * cluster.inter.latency
    busy = max(costs.sum(axis=1).max(), costs.sum(axis=0).max())
    if cluster.routed:
        busy = cluster.busiest(
            (src, dst, float(table[i, j]))
            for i, src in enumerate(members)
            for j, dst in enumerate(members)
        )
    return float(latency.max() + busy)


def _table(nbytes: Sequence[int], splits: Splits) -> np.ndarray:
    """Bytes from each member (row) to each (column), float64; equal shares where not told."""
    size = len(nbytes)
    rows = [
        splits[i] if i < len(splits) and splits[i] else [n / size] * size
        for i, n in enumerate(nbytes)
    ]
    for row in rows:
        if len(row) != size:
            raise ValueError(f"all_to_all of {size} ranks with {len(row)} splits")
    return np.array(rows, dtype=np.float64)


def _ceil(values: np.ndarray) -> list[int]:
    return [int(value) for value in np.ceil(values)]
