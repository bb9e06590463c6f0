"""The machine a record is replayed on: devices, their ports, network cards and link speeds.

Two levels. Inside a node every device has one full-duplex port to a switch that is never the
bottleneck; between nodes every network card (NIC) has one. A message crosses

- inside a node: sender's port out, receiver's port in;
- between nodes: sender's NIC out, receiver's NIC in. The device's own port is not crossed: in a
  machine with NVLink a device reaches its NIC over PCIe, so both kinds of traffic overlap, and
  the hierarchical all-reduce takes exactly its formula whatever the two bandwidths are. In a
  machine without NVLink (`shared_port`) the port is the PCIe slot and is crossed as well.

Each crossing costs one latency in all, that of the level.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """A kind of link: latency in seconds, bandwidth in bytes/s of one direction.

    Raises ValueError unless latency ≥ 0 and bandwidth > 0, both finite.
    """

    latency: float
    bandwidth: float

    def __post_init__(self) -> None:
        if not (0 <= self.latency < math.inf):
            raise ValueError(f"latency must be finite seconds ≥ 0, got {self.latency!r}")
        if not (0 < self.bandwidth < math.inf):
            raise ValueError(f"bandwidth must be finite bytes/s > 0, got {self.bandwidth!r}")


class Path(NamedTuple):
    """How a message travels: link numbers in order, and the latency of the whole in seconds."""

    links: tuple[int, ...]
    latency: float


class Layout(NamedTuple):
    """How the ranks of a group lie on the cluster, as closed formulas see it.

    nodes × per_node ranks. The ranks of a group with unequal shares count as lying on one node
    (nodes = 1) whose links are the slowest that the group uses. `inner` links the ranks of a node,
    `outer` the nodes. nic_share: most ranks of the group that use one NIC.
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

    @staticmethod
    def preset(name: str, devices: int = 8) -> Cluster:
        """The cluster `name` with at least `devices` devices (whole nodes).

        Raises ValueError for a name that is not known.
        """
        if name == "uniform":
            return uniform(devices, latency=5e-6, bandwidth=50e9)
        raise ValueError(f"unknown cluster {name!r}; known: {', '.join(PRESETS)}")

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
    def link_bandwidths(self) -> list[float]:
        """Bytes/s of every link, by link number."""
        ports = [self.intra.bandwidth] * (2 * self.devices)
        return ports + [self.inter.bandwidth] * (2 * self.nodes * self.nics)

    def link_name(self, link: int) -> str:
        """A link in words: "device 3 out", "node 1 nic 0 in"."""
        direction = "in" if link % 2 else "out"
        if link < 2 * self.devices:
            return f"device {link // 2} {direction}"
        node, nic = divmod(link // 2 - self.devices, self.nics)
        return f"node {node} nic {nic} {direction}"

    def node_of(self, rank: int) -> int:
        """The node that rank (a device number) sits on; ValueError outside the cluster."""
        if not 0 <= rank < self.devices:
            raise ValueError(f"{self.name} has devices 0 … {self.devices - 1}, not {rank}")
        return rank // self.devices_per_node

    def path(self, src: int, dst: int) -> Path:
        """Links and latency from rank src to rank dst. A device reaches itself at no cost."""
        same = self.node_of(src) == self.node_of(dst)
        if src == dst:
            return Path((), 0.0)
        if same:
            return Path((2 * src, 2 * dst + 1), self.intra.latency)
        cards: tuple[int, ...] = (2 * self._nic(src), 2 * self._nic(dst) + 1)
        if self.shared_port:
            cards = (2 * src, *cards, 2 * dst + 1)
        return Path(cards, self.inter.latency)

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
        return tuple(sorted(links))

    def layout(self, members: Sequence[int]) -> Layout:
        """How these ranks (distinct, at least one) lie on the nodes."""
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

    def _nic(self, rank: int) -> int:
        """The NIC of a rank, numbered after all devices so that 2·nic is its link out."""
        node, device = divmod(rank, self.devices_per_node)
        return self.devices + node * self.nics + device * self.nics // self.devices_per_node


#: Names that `Cluster.preset` knows.
PRESETS = ("uniform",)


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
