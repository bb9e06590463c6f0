"""Cases of assignment 0 about networks: a graph is judged by what can be measured on it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import networkx as nx

from grader.checks.a0_cases import Case, shown
from grader.checks.framework import CheckFailed

Judge = Callable[[nx.Graph], None]


def hosts(graph: nx.Graph) -> list[int]:
    """End points, in the order in which they were added."""
    return [node for node, kind in graph.nodes(data="kind") if kind == "host"]


def graph_case(label: str, arguments: dict[str, Any], *judges: Judge, traits: Any = ()) -> Case:
    """Build a network and measure it."""

    def judge(got: Any) -> None:
        if not isinstance(got, dict) or "edges" not in got:
            raise CheckFailed(f"returned {shown(got, 120)}, expected a networkx.Graph")
        if got["directed"]:
            raise CheckFailed("returned a directed graph, expected an undirected one")
        graph = nx.Graph()
        for node, kind in enumerate(got["kinds"]):
            if kind not in ("host", "switch"):
                raise CheckFailed(
                    f"a node has kind {kind!r}, expected 'host' or 'switch'",
                    cause="nodes carry `kind`: graph.add_node(name, kind=…)"
                    if kind is None
                    else None,
                )
            graph.add_node(node, kind=kind)
        for a, b, rate in got["edges"]:
            if isinstance(rate, bool) or not isinstance(rate, (int, float)):
                raise CheckFailed(
                    f"a link has bandwidth {rate!r}, expected bytes/s",
                    cause="edges carry `bandwidth`: graph.add_edge(a, b, bandwidth=…)",
                )
            graph.add_edge(a, b, bandwidth=rate)
        for each in judges:
            each(graph)

    return Case(label, arguments, judge, traits=frozenset(traits))


def counts(host_count: int, switch_count: int, links: int) -> Judge:
    """Nodes of either kind, and edges."""

    def judge(graph: nx.Graph) -> None:
        kinds = Counter(kind for _, kind in graph.nodes(data="kind"))
        found = (kinds["host"], kinds["switch"], graph.number_of_edges())
        if found == (host_count, switch_count, links):
            return
        cause = None
        if any(a == b for a, b in graph.edges):
            cause = "nodes are linked to themselves"
        elif found[1] and not switch_count:
            cause = "there are no switches here: hosts are linked to each other"
        elif found[0] < host_count and found[1] < switch_count:
            cause = "whole switches are missing, with what hangs on them"
        elif found[0] < host_count:
            cause = "hosts are missing, or two have the same name and became one node"
        raise CheckFailed(
            f"{found[0]} hosts, {found[1]} switches and {found[2]} links, expected {host_count}, "
            f"{switch_count} and {links}",
            cause=cause,
        )

    return judge


def rates(expected: Counter[float]) -> Judge:
    """How many links have which bandwidth."""

    def judge(graph: nx.Graph) -> None:
        found = Counter(rate for _, _, rate in graph.edges(data="bandwidth"))
        if found != expected:
            raise CheckFailed(f"links by bandwidth: {dict(found)}, expected {dict(expected)}")

    return judge


def degrees(kind: str, expected: Counter[int]) -> Judge:
    """How many nodes of a kind have how many links."""

    def judge(graph: nx.Graph) -> None:
        found = Counter(graph.degree[n] for n, k in graph.nodes(data="kind") if k == kind)
        if found != expected:
            raise CheckFailed(
                f"{kind} nodes by number of links: {dict(sorted(found.items()))}, expected "
                f"{dict(sorted(expected.items()))}"
            )

    return judge


def diameter(expected: int) -> Judge:
    """Links between the two hosts that are farthest apart."""

    def judge(graph: nx.Graph) -> None:
        ends = hosts(graph)
        farthest = 0
        for host in ends:
            distance = nx.single_source_shortest_path_length(graph, host)
            lost = [other for other in ends if other not in distance]
            if lost:
                raise CheckFailed(f"{len(lost)} hosts cannot be reached from another one")
            farthest = max(farthest, *(distance[other] for other in ends))
        if farthest != expected:
            raise CheckFailed(f"the diameter is {farthest} links, expected {expected}")

    return judge


def flow(graph: nx.Graph, left: Sequence[int], right: Sequence[int]) -> float:
    """Most bytes/s from hosts `left` to hosts `right`."""
    net = nx.DiGraph()
    for a, b, rate in graph.edges(data="bandwidth"):
        net.add_edge(a, b, capacity=rate)
        net.add_edge(b, a, capacity=rate)
    net.add_edges_from(("from", host) for host in left)
    net.add_edges_from((host, "to") for host in right)
    return float(nx.maximum_flow_value(net, "from", "to"))


def clusters(graph: nx.Graph, distance: int) -> list[list[int]]:
    """Hosts in sets that are at most `distance` links apart: those of a switch (2), a pod (4)."""
    left, found = hosts(graph), []
    while left:
        near = nx.single_source_shortest_path_length(graph, left[0], cutoff=distance)
        found.append([host for host in left if host in near])
        left = [host for host in left if host not in near]
    return found


def bisection(distance: int, expected: float, rng: random.Random, full: bool = False) -> Judge:
    """Bytes/s between the halves when whole clusters are parted; full: at least that for any half.

    distance: see `clusters`.
    """

    def judge(graph: nx.Graph) -> None:
        groups = clusters(graph, distance)
        half = len(groups) // 2
        left = [host for group in groups[:half] for host in group]
        right = [host for group in groups[half:] for host in group]
        found = flow(graph, left, right)
        if abs(found - expected) > 1e-9 * expected:
            sizes = sorted(map(len, groups))
            raise CheckFailed(
                f"{found:.6g} bytes/s fit between two halves of the hosts, expected {expected:.6g} "
                f"(hosts that are at most {distance} links apart, in sets of {sizes})",
                cause="links lead to the wrong switches, though their number may be right"
                if len(set(sizes)) == 1
                else "hosts hang on the wrong switches: such sets should be of one size",
            )
        for _ in range(3 if full else 0):
            ends = hosts(graph)
            rng.shuffle(ends)
            middle = len(ends) // 2
            found = flow(graph, ends[:middle], ends[middle:])
            if found < expected * (1 - 1e-9):
                raise CheckFailed(
                    f"{found:.6g} bytes/s fit between two random halves of the hosts, expected at "
                    f"least {expected:.6g} (full bisection)"
                )

    return judge


def edge_oversubscription(expected: float) -> Judge:
    """Bytes/s down ÷ up at every switch that has hosts."""

    def judge(graph: nx.Graph) -> None:
        kind = nx.get_node_attributes(graph, "kind")
        for switch in graph:
            down = up = 0.0
            for other, edge in graph[switch].items():
                if kind[other] == "host":
                    down += edge["bandwidth"]
                else:
                    up += edge["bandwidth"]
            if kind[switch] == "switch" and down and (not up or abs(down / up - expected) > 1e-9):
                ratio = "∞" if not up else f"{down / up:g}"
                raise CheckFailed(
                    f"a switch with hosts is oversubscribed {ratio} : 1, expected {expected:g} : 1"
                )

    return judge


def same_as(expected: nx.Graph) -> Judge:
    """The same graph, whatever the names (hosts only)."""

    def judge(graph: nx.Graph) -> None:
        if not nx.is_isomorphic(graph, expected):
            raise CheckFailed("the links do not form that network, though their number is right")

    return judge
