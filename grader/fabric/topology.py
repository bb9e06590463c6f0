"""What lies below and above a node's network cards: the PCIe tree inside, the switches outside.

Both only say which links a message crosses, in order, and how much latency they add. Links are
numbered from 0 by each of them; a `Cluster` puts them behind its own ports and cards. Every link
has one direction.

Equal-cost paths are chosen by destination ("d-mod-k", as InfiniBand's static routes for fat-trees
[Zahavi et al. 2010]): a message goes up to the switch that the number of its *destination* card
names. So the route is fixed, whoever sends, and shifts (every card to the one k further on, which
is what rings and pairwise exchanges are) never meet on an upward link of a full tree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


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


@dataclass(frozen=True, slots=True)
class PcieTree:
    """Inside a node without NVSwitch: devices below PCIe switches, those below the CPUs.

    numa_nodes: CPUs (sockets) of a node, with equal shares of its devices, in order.
    switches: PCIe switches below each CPU, with equal shares of its devices; None: every device
        has a root port of its own.
    uplink: link of a PCIe switch to its CPU. socket: between two CPUs, for each ordered pair.
    memory: latency, and bytes/s that a CPU's memory can take in *and* give out again at the same
        time, for messages that are staged through it.
    staged: devices cannot reach each other and go through host memory, that of the sender's CPU.

    A message crosses, between the devices' own slots: nothing more below the same switch, if not
    staged; else the switch's uplink, the memory if staged, the socket link to another CPU, and the
    other switch's uplink downwards. A card hangs where its first device does, at the CPU.
    """

    numa_nodes: int
    switches: int | None
    uplink: LinkSpec
    socket: LinkSpec
    memory: LinkSpec
    staged: bool = False

    def __post_init__(self) -> None:
        if self.numa_nodes < 1:
            raise ValueError(f"numa_nodes must be at least 1, got {self.numa_nodes}")
        if self.switches is not None and self.switches < 1:
            raise ValueError(f"switches must be at least 1, got {self.switches}")

    def check(self, devices: int) -> None:
        """Raises ValueError unless a node's devices can be shared out evenly."""
        parts = self.numa_nodes * (self.switches or 1)
        if devices % parts:
            raise ValueError(
                f"{devices} devices of a node cannot be shared evenly by {parts} "
                f"{'PCIe switches' if self.switches else 'CPUs'}"
            )

    @property
    def links(self) -> int:
        """How many links a node has."""
        return self.numa_nodes * (2 * (self.switches or 0) + self.numa_nodes + 1)

    @property
    def bandwidths(self) -> list[float]:
        """Bytes/s of a node's links, by number: switches (up, down), sockets, memories."""
        switches = self.numa_nodes * (self.switches or 0)
        return (
            [self.uplink.bandwidth] * (2 * switches)
            + [self.socket.bandwidth] * (self.numa_nodes * self.numa_nodes)
            + [self.memory.bandwidth] * self.numa_nodes
        )

    def name(self, link: int) -> str:
        """A link in words."""
        switches = self.numa_nodes * (self.switches or 0)
        if link < 2 * switches:
            return f"switch {link // 2} {'down' if link % 2 else 'up'}"
        link -= 2 * switches
        if link < self.numa_nodes * self.numa_nodes:
            return f"CPU {link // self.numa_nodes} to CPU {link % self.numa_nodes}"
        return f"memory of CPU {link - self.numa_nodes * self.numa_nodes}"

    def between(self, src: int, dst: int, devices: int) -> tuple[tuple[int, ...], float]:
        """Links and added latency between two devices of a node that has so many."""
        if (
            not self.staged
            and self.switches
            and self._switch(src, devices) == self._switch(dst, devices)
        ):
            return (), 0.0
        up, climb = self.to_cpu(src, devices)
        down, descent = self.to_cpu(dst, devices)
        across, crossing = self._across(self._cpu(src, devices), self._cpu(dst, devices))
        return (*up, *across, *(link + 1 for link in down)), climb + crossing + descent

    def to_card(self, device: int, card_device: int, devices: int) -> tuple[tuple[int, ...], float]:
        """Links and added latency from a device to a card that hangs at `card_device`'s CPU."""
        up, climb = self.to_cpu(device, devices)
        across, crossing = self._across(self._cpu(device, devices), self._cpu(card_device, devices))
        return (*up, *across), climb + crossing

    def from_card(
        self, device: int, card_device: int, devices: int
    ) -> tuple[tuple[int, ...], float]:
        """The way back: links and added latency from such a card to a device."""
        across, crossing = self._across(self._cpu(card_device, devices), self._cpu(device, devices))
        down, descent = self.to_cpu(device, devices)
        return (*across, *(link + 1 for link in down)), crossing + descent

    def to_cpu(self, device: int, devices: int) -> tuple[tuple[int, ...], float]:
        """The uplink of the device's switch, if there is one; downwards it is the next number."""
        if self.switches is None:
            return (), 0.0
        return (2 * self._switch(device, devices),), self.uplink.latency

    def _across(self, src: int, dst: int) -> tuple[tuple[int, ...], float]:
        """From CPU to CPU, through the memory of the first if staged."""
        links: tuple[int, ...] = ()
        latency = 0.0
        first = 2 * self.numa_nodes * (self.switches or 0)
        if self.staged:
            links += (first + self.numa_nodes * self.numa_nodes + src,)
            latency += self.memory.latency
        if src != dst:
            links += (first + src * self.numa_nodes + dst,)
            latency += self.socket.latency
        return links, latency

    def _switch(self, device: int, devices: int) -> int:
        return device * self.numa_nodes * (self.switches or 1) // devices

    def _cpu(self, device: int, devices: int) -> int:
        return device * self.numa_nodes // devices


@dataclass(frozen=True, slots=True)
class Network:
    """Between the nodes: leaf, spine and core switches above the network cards.

    nodes_per_leaf: nodes whose cards hang at one leaf switch.
    rails: card i of a node hangs at leaf number i of its set of leaves, so that cards with the same
        number meet at a leaf ("rail-optimized"). Without rails all cards of a node share a leaf.
    spines: spine switches of a pod; every leaf of the pod has a link to each.
    uplink: such a link. latency: what each switch beyond the first adds.
    leaves_per_pod: leaf switches below one set of spines, None for all (then there is no core).
    cores_per_spine: core switches that spine s of every pod has a link to; spines with different
        numbers share none. core: such a link.

    A leaf is oversubscribed (cards at the leaf × their bandwidth) ÷ (spines × uplink.bandwidth).
    """

    nodes_per_leaf: int
    spines: int
    uplink: LinkSpec
    rails: bool = False
    leaves_per_pod: int | None = None
    cores_per_spine: int = 1
    core: LinkSpec | None = None

    def __post_init__(self) -> None:
        for field in ("nodes_per_leaf", "spines", "leaves_per_pod", "cores_per_spine"):
            value = getattr(self, field)
            if value is not None and value < 1:
                raise ValueError(f"{field} must be at least 1, got {value}")
        if self.leaves_per_pod is not None and self.core is None:
            raise ValueError("a network of several pods needs `core`, the links above its spines")

    def leaf(self, card: int, cards_per_node: int) -> int:
        """The leaf switch of a card; cards are numbered through all nodes."""
        node, place = divmod(card, cards_per_node)
        group = node // self.nodes_per_leaf
        return group * cards_per_node + place if self.rails else group

    def leaves(self, nodes: int, cards_per_node: int) -> int:
        """Leaf switches of the whole network."""
        groups = -(-nodes // self.nodes_per_leaf)
        return groups * (cards_per_node if self.rails else 1)

    def pods(self, nodes: int, cards_per_node: int) -> int:
        """Sets of leaves with spines of their own."""
        if self.leaves_per_pod is None:
            return 1
        return -(-self.leaves(nodes, cards_per_node) // self.leaves_per_pod)

    def bandwidths(self, nodes: int, cards_per_node: int) -> list[float]:
        """Bytes/s of all links, by number: (leaf, spine) up and down, then (spine, core)."""
        found = [self.uplink.bandwidth] * (2 * self.leaves(nodes, cards_per_node) * self.spines)
        pods = self.pods(nodes, cards_per_node)
        if self.core is not None and pods > 1:
            found += [self.core.bandwidth] * (2 * pods * self.spines * self.cores_per_spine)
        return found

    def name(self, link: int, nodes: int, cards_per_node: int) -> str:
        """A link in words."""
        direction = "down" if link % 2 else "up"
        leaves = self.leaves(nodes, cards_per_node)
        if link < 2 * leaves * self.spines:
            leaf, spine = divmod(link // 2, self.spines)
            return f"leaf {leaf} spine {spine} {direction}"
        pod, rest = divmod(link // 2 - leaves * self.spines, self.spines * self.cores_per_spine)
        spine, core = divmod(rest, self.cores_per_spine)
        return f"pod {pod} spine {spine} core {core} {direction}"

    def adding_seconds(self, cards: Iterable[int], nbytes: float, cards_per_node: int) -> float:
        """Seconds of the busiest link above the leaves while the switches add.

        Cards with the same number in their nodes add `nbytes` each, along a tree of their own: a
        switch hands on one sum of all that came from below. The trees are shared out over the
        spines, and over the cores of a spine, in turn. Nothing climbs out of a single leaf.
        """
        leaves: dict[int, set[int]] = {}
        for card in cards:
            leaves.setdefault(card % cards_per_node, set()).add(self.leaf(card, cards_per_node))
        above: dict[tuple[int, ...], int] = {}
        width = self.leaves_per_pod
        seconds = 0.0
        for number, reached in leaves.items():
            left, spine = divmod(number, self.spines)
            pods = {leaf // width for leaf in reached} if width is not None else set()
            links: list[tuple[int, ...]] = []
            if len(reached) > 1:
                links += [(0, leaf, spine) for leaf in reached]
            if self.core is not None and len(pods) > 1:
                core = left % self.cores_per_spine
                links += [(1, pod, spine, core) for pod in pods]
            for link in links:
                above[link] = above.get(link, 0) + 1
                rate = self.core if link[0] and self.core is not None else self.uplink
                seconds = max(seconds, above[link] * nbytes / rate.bandwidth)
        return seconds

    def between(
        self, src: int, dst: int, nodes: int, cards_per_node: int
    ) -> tuple[tuple[int, ...], float]:
        """Links and added latency between two cards; none below the same leaf."""
        here, there = self.leaf(src, cards_per_node), self.leaf(dst, cards_per_node)
        if here == there:
            return (), 0.0
        # The destination's number chooses the spine, and what is left of it the core. With rails
        # the cards below a leaf have consecutive node numbers, without them consecutive numbers.
        number = dst // cards_per_node if self.rails else dst
        spine, left = number % self.spines, number // self.spines
        up, down = 2 * (here * self.spines + spine), 2 * (there * self.spines + spine) + 1
        pod, other = (
            (0, 0)
            if self.leaves_per_pod is None
            else (here // self.leaves_per_pod, there // self.leaves_per_pod)
        )
        if pod == other or self.core is None:
            return (up, down), 2 * self.uplink.latency
        first = 2 * self.leaves(nodes, cards_per_node) * self.spines
        core = left % self.cores_per_spine
        climb = first + 2 * ((pod * self.spines + spine) * self.cores_per_spine + core)
        descent = first + 2 * ((other * self.spines + spine) * self.cores_per_spine + core) + 1
        latency = 2 * self.uplink.latency + 2 * self.core.latency
        return (up, climb, descent, down), latency
