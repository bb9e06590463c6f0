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
                    both: 2α + 2α' + max(nβ, (n/g)β'). A leaf hands on one sum per card number,
                    so its uplinks count where they are slower than the cards. Rings are taken
                    where they are faster
    all_gather      ring, half of all_reduce; n = what everybody holds at the end; of uneven
                    contributions the largest sets the pace
    reduce_scatter  pairwise, half of all_reduce; n = a rank's whole input
    all_to_all      pairwise, stepwise: an α or α' for every other rank, plus the largest row or
                    column sum of bytes, each byte at its level's β (a rank's own share is free);
                    where routes share more than ports and cards, the paths' latencies and the
                    time of the busiest link
    broadcast, reduce   binomial trees, over the nodes and in each: ⌈lg g⌉(α+nβ) + ⌈lg k⌉(α'+nβ')
                    with β' of one NIC; where routes share links, round by round the longest
                    latency and the time of the busiest link
    gather, scatter the root's messages posted together: the longest path's latency, plus the
                    time of the busiest link: the root's port or NIC, or one between
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
        shares = _rooted_shares(kind, members, nbytes, root)
        return _rooted_seconds(members, shares, cluster, root, kind == "gather")
    if kind in ("broadcast", "reduce") and cluster.routed:
        return _tree_seconds(kind, members, max(nbytes), cluster, root)
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
                return min(2 * one_way, _in_network_seconds(total, members, layout, cluster))
        return 2 * one_way if kind == "all_reduce" else one_way
    if kind == "barrier":
        total = 0
    inside, between = (per_node - 1).bit_length(), (nodes - 1).bit_length()
    return inside * (inner.latency + total / inner.bandwidth) + between * (
        outer.latency + total / outer.bandwidth
    )


def _in_network_seconds(
    total: int, members: Sequence[int], layout: Layout, cluster: Cluster
) -> float:
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
        between = max(share / cluster.inter.bandwidth, cluster.adding_above(members, share))
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
    members: Sequence[int], shares: Sequence[int], cluster: Cluster, root: int, gather: bool
) -> float:
    """All messages to the root (gather), or from it, posted together."""
    return _together(
        [
            (rank, root, float(share)) if gather else (root, rank, float(share))
            for rank, share in zip(members, shares, strict=True)
            if rank != root
        ],
        cluster,
    )


def _together(messages: Sequence[tuple[int, int, float]], cluster: Cluster) -> float:
    """Seconds of messages (src, dst, bytes) posted at once: longest latency and busiest link."""
    latency = max((cluster.path(src, dst).latency for src, dst, _ in messages), default=0.0)
    return latency + cluster.busiest(messages)


def _tree_seconds(
    kind: str, members: Sequence[int], nbytes: int, cluster: Cluster, root: int
) -> float:
    """Binomial trees round by round, where messages of a round may share links.

    Over the nodes from the root, then in all nodes at once; over all ranks where nodes have
    unequal shares of the group. A reduce runs them backwards.
    """
    nodes: dict[int, list[int]] = {}
    for rank in members:
        nodes.setdefault(cluster.node_of(rank), []).append(rank)
    first = cluster.node_of(root)
    if len({len(group) for group in nodes.values()}) > 1:
        at = members.index(root)
        levels = [[[*members[at:], *members[:at]]]]
    else:
        place = nodes[first].index(root)
        groups = [[*group[place:], *group[:place]] for group in nodes.values()]
        start = list(nodes).index(first)
        heads = [group[0] for group in (*groups[start:], *groups[:start])]
        levels = [[heads], groups]
    seconds = 0.0
    for trees in levels:
        step = 1 << (len(trees[0]) - 1).bit_length() >> 1
        while step:
            pairs = [
                (tree[i], tree[i + step])
                for tree in trees
                for i in range(0, len(tree) - step, 2 * step)
            ]
            back = kind == "reduce"
            messages = [(b, a, float(nbytes)) if back else (a, b, float(nbytes)) for a, b in pairs]
            seconds += _together(messages, cluster)
            step >>= 1
    return seconds


def _all_to_all_seconds(
    members: Sequence[int], nbytes: Sequence[int], cluster: Cluster, splits: Splits
) -> float:
    table = _table(nbytes, splits)
    if cluster.routed:
        return _routed_all_to_all_seconds(members, table, cluster)
    layout = cluster.layout(members)
    nodes = np.array([cluster.node_of(rank) for rank in members])
    near = nodes[:, None] == nodes[None, :]
    beta = np.where(near, 1 / cluster.intra.bandwidth, layout.nic_share / layout.outer.bandwidth)
    np.fill_diagonal(beta, 0.0)
    costs = table * beta
    neighbours = near.sum(axis=1)
    latency = (neighbours - 1) * cluster.intra.latency + (
        len(members) - neighbours
    ) * cluster.inter.latency
    return float(latency.max() + max(costs.sum(axis=1).max(), costs.sum(axis=0).max()))


def _routed_all_to_all_seconds(
    members: Sequence[int], table: np.ndarray, cluster: Cluster
) -> float:
    load = np.zeros(len(bandwidths := cluster.link_bandwidths))
    longest = 0.0
    for i, src in enumerate(members):
        paths = [cluster.path(src, dst) for dst in members]
        longest = max(longest, sum(path.latency for path in paths))
        for path, share in zip(paths, table[i].tolist(), strict=True):
            for link in path.links:
                load[link] += share
    return longest + float((load / np.array(bandwidths)).max())


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
