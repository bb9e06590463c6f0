"""The machine a record is replayed on: devices, their ports, network cards and link speeds.

Two levels at least. Inside a node every device has one full-duplex port to a switch that is never
the bottleneck; between nodes every network card (NIC) has one. A message crosses

- inside a node: sender's port out, receiver's port in;
- between nodes: sender's NIC out, receiver's NIC in. The device's own port is not crossed: in a
  machine with NVLink a device reaches its NIC over PCIe, so both kinds of traffic overlap, and
  the hierarchical all-reduce takes exactly its formula whatever the two bandwidths are. In a
  machine without NVLink (`shared_port`) the port is the PCIe slot and is crossed as well.

Each crossing costs one latency in all, that of the level.

More levels where they are told (`grader.fabric.topology`): a `PcieTree` inside the nodes puts its
switches, CPUs and host memory between the ports, a `Network` its leaf, spine and core switches
between the cards. Their links are crossed in order, and add their latencies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from grader.fabric.topology import LinkSpec, Network, PcieTree

__all__ = ["Cluster", "Layout", "LinkSpec", "Path", "two_level", "uniform"]


class Path(NamedTuple):
    """How a message travels: link numbers in order, and the latency of the whole in seconds."""

    links: tuple[int, ...]
    latency: float


class Layout(NamedTuple):
    """How the ranks of a group lie on the cluster, as closed formulas see it.

    nodes × per_node ranks. The ranks of a group with unequal shares count as lying on one node
    (nodes = 1) whose links are the slowest that the group uses. `inner` links the ranks of a node,
    `outer` the nodes. nic_share: most ranks of the group that use one NIC. Where messages of a ring
    share links of a `PcieTree` or a `Network`, the bandwidths are what is left for each.
    """

    nodes: int
    per_node: int
    inner: LinkSpec
    outer: LinkSpec
    nic_share: int


@dataclass(frozen=True, slots=True)
class Cluster:
    """`nodes` equal nodes of `devices_per_node` devices; rank r sits on device r.

    intra, inter: links inside a node and between nodes, per port.
    nics_per_node: NICs of a node, `None` for one per device; device i of a node uses NIC
        i·nics // devices of it.
    flops: rate of a device, FLOP/s; memory_bandwidth: bytes/s. Either may be `math.inf` (free).
    switch_adds: the switch inside a node reduces (NVLink SHARP), so an all-reduce of ranks of
        one node takes 2α + nβ.
    shared_port: traffic between nodes crosses the devices' own ports too.
    tree: PCIe switches and CPUs inside the nodes (implies shared_port). network: switches between.
    network_adds: the switches between the nodes reduce, too (InfiniBand SHARP).
    adding_bandwidth: bytes/s of a port while the node's switch adds, None for intra.bandwidth.

    Raises ValueError for counts below 1, more NICs than devices, or rates that are not positive.
    """

    name: str
    nodes: int
    devices_per_node: int
    intra: LinkSpec
    inter: LinkSpec
    nics_per_node: int | None = None
    flops: float = 100e12
    memory_bandwidth: float = 2e12
    switch_adds: bool = False
    shared_port: bool = False
    tree: PcieTree | None = None
    network: Network | None = None
    network_adds: bool = False
    adding_bandwidth: float | None = None

    def __post_init__(self) -> None:
        for field in ("nodes", "devices_per_node"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field} must be at least 1, got {getattr(self, field)}")
        if self.nics_per_node is not None and not (
            1 <= self.nics_per_node <= self.devices_per_node
        ):
            raise ValueError(
                f"nics_per_node must be 1 … {self.devices_per_node} (one per device at most; give "
                f"several NICs of a device as one faster NIC), got {self.nics_per_node}"
            )
        for field in ("flops", "memory_bandwidth"):
            if not getattr(self, field) > 0:
                raise ValueError(f"{field} must be > 0, got {getattr(self, field)!r}")
        if self.adding_bandwidth is not None and not self.adding_bandwidth > 0:
            raise ValueError(f"adding_bandwidth must be > 0, got {self.adding_bandwidth!r}")
        if self.tree is not None:
            self.tree.check(self.devices_per_node)
            object.__setattr__(self, "shared_port", True)

    @staticmethod
    def preset(name: str, devices: int = 8) -> Cluster:
        """The cluster `name` with at least `devices` devices (whole nodes).

        "dgx-h100*4" has four nodes, and more if `devices` do not fit. Raises ValueError for a name
        that is not known. The names are in `grader.fabric.presets`.
        """
        from grader.fabric.presets import preset

        return preset(name, devices)

    # What the clock reads ---------------------------------------------------------------------

    @property
    def devices(self) -> int:
        """Devices of the whole cluster, so the largest world it can run."""
        return self.nodes * self.devices_per_node

    @property
    def nics(self) -> int:
        """NICs of one node."""
        return self.devices_per_node if self.nics_per_node is None else self.nics_per_node

    @property
    def routed(self) -> bool:
        """Whether messages cross more than ports and cards, so that routes matter."""
        return self.tree is not None or self.network is not None

    @property
    def link_bandwidths(self) -> list[float]:
        """Bytes/s of every link, by link number: ports, cards, PCIe trees, network."""
        found = [self.intra.bandwidth] * (2 * self.devices)
        found += [self.inter.bandwidth] * (2 * self.nodes * self.nics)
        if self.tree is not None:
            found += self.tree.bandwidths * self.nodes
        if self.network is not None:
            found += self.network.bandwidths(self.nodes, self.nics)
        return found

    def link_name(self, link: int) -> str:
        """A link in words: "device 3 out", "node 1 nic 0 in"."""
        direction = "in" if link % 2 else "out"
        if link < 2 * self.devices:
            return f"device {link // 2} {direction}"
        if link < self._first_inside:
            node, nic = divmod(link // 2 - self.devices, self.nics)
            return f"node {node} nic {nic} {direction}"
        if self.tree is not None and link < self._first_outside:
            node, inside = divmod(link - self._first_inside, self.tree.links)
            return f"node {node} {self.tree.name(inside)}"
        if self.network is not None:
            return self.network.name(link - self._first_outside, self.nodes, self.nics)
        raise ValueError(f"{self.name} has no link {link}")

    @property
    def _first_inside(self) -> int:
        """Number of the first link of a PCIe tree."""
        return 2 * (self.devices + self.nodes * self.nics)

    @property
    def _first_outside(self) -> int:
        """Number of the network's first link."""
        inside = 0 if self.tree is None else self.nodes * self.tree.links
        return self._first_inside + inside

    def node_of(self, rank: int) -> int:
        """The node that rank (a device number) sits on; ValueError outside the cluster."""
        if not 0 <= rank < self.devices:
            raise ValueError(f"{self.name} has devices 0 … {self.devices - 1}, not {rank}")
        return rank // self.devices_per_node

    def path(self, src: int, dst: int) -> Path:
        """Links and latency from rank src to rank dst. A device reaches itself at no cost."""
        here, there = self.node_of(src), self.node_of(dst)
        if src == dst:
            return Path((), 0.0)
        if here == there:
            if self.tree is None:
                return Path((2 * src, 2 * dst + 1), self.intra.latency)
            first = here * self.devices_per_node
            inside, more = self.tree.between(src - first, dst - first, self.devices_per_node)
            links = self._inside(here, inside)
            return Path((2 * src, *links, 2 * dst + 1), self.intra.latency + more)
        out, into = self._nic(src), self._nic(dst)
        cards: tuple[int, ...] = (2 * out, 2 * into + 1)
        latency = self.inter.latency
        if self.network is not None:
            outside, more = self.network.between(
                out - self.devices, into - self.devices, self.nodes, self.nics
            )
            base = self._first_outside
            cards = (2 * out, *(base + link for link in outside), 2 * into + 1)
            latency += more
        if self.shared_port:
            to_card, more = self._to_card(src, here, away=True)
            from_card, still_more = self._to_card(dst, there, away=False)
            cards = (2 * src, *to_card, *cards, *from_card, 2 * dst + 1)
            latency += more + still_more
        return Path(cards, latency)

    def _inside(self, node: int, links: Iterable[int]) -> tuple[int, ...]:
        """Links of a node's PCIe tree by their number in the cluster."""
        if self.tree is None:
            return ()
        base = self._first_inside + node * self.tree.links
        return tuple(base + link for link in links)

    def _to_card(self, rank: int, node: int, away: bool) -> tuple[tuple[int, ...], float]:
        """What lies between a device's port and its card, on the way out or in."""
        if self.tree is None:
            return (), 0.0
        device, count = rank - node * self.devices_per_node, self.devices_per_node
        card = device * self.nics // count
        at = -(-card * count // self.nics)  # the first device that uses the card
        walk = self.tree.to_card if away else self.tree.from_card
        links, latency = walk(device, at, count)
        return self._inside(node, links), latency

    def ports(self, members: Sequence[int]) -> tuple[int, ...]:
        """Links that a collective of these ranks keeps busy: all that their messages may cross.

        The devices' ports unless every rank is alone on its node, and the NICs if there are
        several nodes.
        """
        nodes = [self.node_of(rank) for rank in members]
        links: set[int] = set()
        if self.shared_port or len(set(nodes)) < len(nodes):
            links.update(link for rank in members for link in (2 * rank, 2 * rank + 1))
        if len(set(nodes)) > 1:
            cards = {self._nic(rank) for rank in members}
            links.update(link for card in cards for link in (2 * card, 2 * card + 1))
        if self.routed:
            inner, outer = self._rings(members)
            links.update(link for pair in (*inner, *outer) for link in self.path(*pair).links)
        return tuple(sorted(links))

    def layout(self, members: Sequence[int]) -> Layout:
        """How these ranks (distinct, at least one) lie on the nodes."""
        if self.routed:
            return self._routed_layout(members)
        counts: dict[int, int] = {}
        sharers: dict[int, int] = {}
        for rank in members:
            node, card = self.node_of(rank), self._nic(rank)
            counts[node] = counts.get(node, 0) + 1
            sharers[card] = sharers.get(card, 0) + 1
        outer = self.inter
        if self.shared_port:
            outer = LinkSpec(outer.latency, min(outer.bandwidth, self.intra.bandwidth))
        shares, share = set(counts.values()), max(sharers.values())
        if len(shares) == 1:
            return Layout(len(counts), shares.pop(), self.intra, outer, share)
        slowest = LinkSpec(
            max(self.intra.latency, outer.latency), min(self.intra.bandwidth, outer.bandwidth)
        )
        return Layout(1, len(members), slowest, outer, share)

    def _routed_layout(self, members: Sequence[int]) -> Layout:
        """The layout where rings inside the nodes, and between them, share links."""
        inner, outer = self._rings(members)
        sharers: dict[int, int] = {}
        for rank in members:
            sharers[self._nic(rank)] = sharers.get(self._nic(rank), 0) + 1
        share, nodes = max(sharers.values()), len({self.node_of(rank) for rank in members})
        inside = self._slowest(inner) if inner else self.intra
        between = self.inter
        if outer:
            pace = self._slowest(outer)
            between = LinkSpec(pace.latency, pace.bandwidth * share)
        if not inner and outer and len(members) != nodes:  # unequal shares
            return Layout(1, len(members), self._slowest(outer), between, share)
        return Layout(nodes, len(members) // nodes, inside, between, share)

    def _rings(self, members: Sequence[int]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Who sends to whom in the rings inside the nodes, and in those between them.

        Between: the ranks with the same place in their nodes; where nodes have unequal shares of
        the group there are no rings inside, and one through all ranks.
        """
        nodes: dict[int, list[int]] = {}
        for rank in members:
            nodes.setdefault(self.node_of(rank), []).append(rank)
        groups = list(nodes.values())
        if len({len(group) for group in groups}) > 1:
            return [], _ring(list(members))
        inner = [pair for group in groups for pair in _ring(group)]
        outer = [pair for places in zip(*groups, strict=True) for pair in _ring(list(places))]
        return inner, outer

    def _slowest(self, pairs: Sequence[tuple[int, int]]) -> LinkSpec:
        """Latency, and bytes/s of each of these messages, when all are sent at once."""
        return LinkSpec(
            max(self.path(*pair).latency for pair in pairs),
            1 / self.busiest((*pair, 1.0) for pair in pairs),
        )

    def busiest(self, messages: Iterable[tuple[int, int, float]]) -> float:
        """Seconds that the busiest link needs for messages (src, dst, bytes) altogether."""
        load: dict[int, float] = {}
        for src, dst, nbytes in messages:
            for link in self.path(src, dst).links:
                load[link] = load.get(link, 0.0) + nbytes
        bandwidths = self.link_bandwidths
        return max((nbytes / bandwidths[link] for link, nbytes in load.items()), default=0.0)

    def adding_above(self, members: Sequence[int], nbytes: float) -> float:
        """Seconds above the leaves while the network adds `nbytes` from each card's ranks."""
        if self.network is None:
            return 0.0
        cards = {self._nic(rank) - self.devices for rank in members}
        return self.network.adding_seconds(cards, nbytes, self.nics)

    def _nic(self, rank: int) -> int:
        """The NIC of a rank, numbered after all devices so that 2·nic is its link out."""
        node, device = divmod(rank, self.devices_per_node)
        return self.devices + node * self.nics + device * self.nics // self.devices_per_node


def _ring(ranks: list[int]) -> list[tuple[int, int]]:
    """Each rank and the next; nobody sends in a ring of one."""
    if len(ranks) < 2:
        return []
    return list(zip(ranks, [*ranks[1:], ranks[0]], strict=True))


def uniform(
    ranks: int,
    latency: float,
    bandwidth: float,
    *,
    flops: float = 100e12,
    memory_bandwidth: float = 2e12,
    switch_adds: bool = False,
) -> Cluster:
    """All devices at one switch: the α–β model (α = latency in s, β = 1 / bandwidth in bytes/s)."""
    link = LinkSpec(latency, bandwidth)
    return Cluster(
        "uniform",
        1,
        ranks,
        link,
        link,
        flops=flops,
        memory_bandwidth=memory_bandwidth,
        switch_adds=switch_adds,
    )


def two_level(
    nodes: int,
    devices_per_node: int,
    intra: LinkSpec,
    inter: LinkSpec,
    *,
    nics_per_node: int | None = None,
    flops: float = 100e12,
    memory_bandwidth: float = 2e12,
) -> Cluster:
    """Nodes with a switch inside and NICs between them; `inter` is per NIC."""
    return Cluster(
        "two-level",
        nodes,
        devices_per_node,
        intra,
        inter,
        nics_per_node,
        flops=flops,
        memory_bandwidth=memory_bandwidth,
    )
