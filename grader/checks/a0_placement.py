"""Cases of assignment 0 about placing ranks and about the best ring."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import networkx as nx

from grader.checks import a0_topologies as topologies
from grader.checks.a0_cases import Case, expect_same, shown
from grader.checks.a0_topologies import Expected, Machine
from grader.checks.framework import CheckFailed

NEAR_TO_FAR = ["PIX", "PXB", "PHB", "NODE", "SYS"]

# bind_ranks -------------------------------------------------------------------------------------


def bind_case(label: str, machine: Machine, ranks: int, part: str) -> Case:
    """Place `ranks` on a machine; part: "gpu", "cores", "near" or "even"."""
    wanted = topologies.expected(machine)
    judges = {"gpu": _judge_gpu, "cores": _judge_cores, "near": _judge_near, "even": _judge_even}
    groups = Counter(machine.cpus[:ranks])
    sizes = {cell: len(topologies.numbers(cell)) for cell in groups}
    shares = {
        "not all gpus": ranks < machine.gpus,
        "few cores": any(0 < sizes[cell] < count for cell, count in groups.items()),
        "uneven cores": any(sizes[c] > n and sizes[c] % n for c, n in groups.items()),
        "interleaved": len(list(itertools.groupby(machine.cpus[:ranks]))) > len(groups),
        "N/A": "N/A" in groups,
    }

    def judge(got: Any) -> None:
        sound = isinstance(got, list) and all(
            isinstance(each, dict) and {"gpu", "cores", "nic"} <= set(each) for each in got
        )
        if not sound or len(got) != ranks:
            raise CheckFailed(f"returned {shown(got)}, expected a list of {ranks} Bindings")
        judges[part](got, wanted)

    topology = topologies.as_arguments(wanted) | {"given": "Topology"}
    arguments = {"topology": topology, "local_world_size": ranks}
    traits = frozenset(name for name, holds in shares.items() if holds)
    return Case(f"{label}, {ranks} ranks", arguments, judge, traits=traits)


def _judge_gpu(got: list[dict[str, Any]], wanted: Expected) -> None:
    for rank, binding in enumerate(got):
        suspects = [(rank, "`gpu` is the device's name in the topology, not its number")]
        expect_same(binding["gpu"], wanted.gpus[rank], f"the GPU of rank {rank}", suspects)


def _judge_cores(got: list[dict[str, Any]], wanted: Expected) -> None:
    sharers: dict[tuple[int, ...], list[int]] = {}
    for rank in range(len(got)):
        sharers.setdefault(tuple(wanted.cpu_affinity[wanted.gpus[rank]]), []).append(rank)
    for affinity, ranks in sharers.items():
        load = Counter(core for rank in ranks for core in got[rank]["cores"])
        counts = {rank: len(got[rank]["cores"]) for rank in ranks}
        where = f"ranks {ranks} near cores {_spans(affinity)}"
        for rank in ranks:
            cores = got[rank]["cores"]
            strange = sorted(set(cores) - set(affinity))
            if strange:
                raise CheckFailed(
                    f"rank {rank} gets core {strange[0]}, expected only cores near "
                    f"{wanted.gpus[rank]}: {_spans(affinity)}",
                    cause="the cores of another GPU, or of all GPUs, are shared out",
                )
            if list(cores) != sorted(set(cores)):
                raise CheckFailed(f"rank {rank} gets {cores}, expected ascending, each once")
        if not affinity:
            continue
        if len(affinity) < len(ranks):
            spread = [load[core] for core in affinity]
            if set(counts.values()) != {1} or max(spread) - min(spread) > 1:
                raise CheckFailed(
                    f"{where}: they get {counts} cores, and the cores serve {spread} of them; "
                    f"expected one core each, no core serving two ranks more than another"
                )
            continue
        if max(load.values(), default=0) > 1:
            core = next(core for core in load if load[core] > 1)
            raise CheckFailed(
                f"{where}: core {core} goes to {load[core]} ranks, expected to one",
                cause="every rank gets all cores near its GPU, instead of its share",
            )
        if max(counts.values()) - min(counts.values()) > 1 or len(load) != len(affinity):
            raise CheckFailed(
                f"{where}: they get {counts} cores of {len(affinity)}, expected all of them, "
                f"shared so that no rank has two more than another",
                cause="the rest of the division is given to one rank, or to none",
            )


def _judge_near(got: list[dict[str, Any]], wanted: Expected) -> None:
    for rank, binding in enumerate(got):
        gpu, nic = wanted.gpus[rank], binding["nic"]
        if not wanted.nics:
            expect_same(nic, None, f"the NIC of rank {rank} on a machine without NICs")
            continue
        if nic not in wanted.nics:
            raise CheckFailed(f"rank {rank} gets NIC {nic!r}, expected one of {wanted.nics}")
        kind = wanted.links[gpu, nic]
        best = min((wanted.links[gpu, each] for each in wanted.nics), key=NEAR_TO_FAR.index)
        if kind != best:
            raise CheckFailed(
                f"rank {rank} gets {nic}, which is {kind} from {gpu}, expected one that is {best}",
                cause="how near a NIC is comes first, then an even spread among the nearest; and "
                "kinds are not in alphabetical order",
            )


def _judge_even(got: list[dict[str, Any]], wanted: Expected) -> None:
    _judge_near(got, wanted)
    loads = Counter(binding["nic"] for binding in got)
    best = fewest_sharers(wanted, len(got))
    if wanted.nics and max(loads.values()) > best:
        raise CheckFailed(
            f"{max(loads.values())} ranks share {loads.most_common(1)[0][0]} ({dict(loads)}), "
            f"expected at most {best} on each of the nearest NICs",
            cause="the first of several equally near NICs is always taken, or a rank that has a "
            "choice does not leave a NIC to one that has none: it may have to be moved aside later",
        )


def fewest_sharers(wanted: Expected, ranks: int) -> int:
    """Most ranks on one NIC in the most even choice of nearest NICs, by maximal flow."""
    if not wanted.nics:
        return 0
    for limit in range(1, ranks + 1):
        graph = nx.DiGraph()
        for gpu in wanted.gpus[:ranks]:
            kinds = {nic: NEAR_TO_FAR.index(wanted.links[gpu, nic]) for nic in wanted.nics}
            graph.add_edge("from", gpu, capacity=1)
            for nic, kind in kinds.items():
                if kind == min(kinds.values()):
                    graph.add_edge(gpu, nic, capacity=1)
                    graph.add_edge(nic, "to", capacity=limit)
        if nx.maximum_flow_value(graph, "from", "to") == ranks:
            return limit
    raise AssertionError("a rank without NICs")


def _spans(cores: Sequence[int]) -> str:
    if not cores:
        return "unknown"
    return f"{cores[0]} … {cores[-1]} ({len(cores)} of them)"


# best_ring --------------------------------------------------------------------------------------


def speed(kind: str) -> int:
    """The larger, the faster."""
    return 100 + int(kind[2:]) if kind.startswith("NV") else 10 - NEAR_TO_FAR.index(kind)


def quality(ring: Sequence[int], wanted: Expected) -> tuple[int, int]:
    """(speed of the slowest link, how many links are that slow)."""
    speeds = [
        speed(wanted.links[f"GPU{a}", f"GPU{b}"])
        for a, b in zip(ring, [*ring[1:], ring[0]], strict=True)
    ]
    return min(speeds), speeds.count(min(speeds))


def exhaustive_ring(wanted: Expected) -> list[int]:
    """The best ring, by trying them all: for up to 8 GPUs."""
    first, *others = sorted(int(gpu[3:]) for gpu in wanted.gpus)
    rings = ([first, *order] for order in itertools.permutations(others))

    def worth(ring: list[int]) -> tuple[int, int, list[int]]:
        slowest, count = quality(ring, wanted) if len(ring) > 1 else (0, 0)
        return -slowest, count, ring

    return min(rings, key=worth)


def ring_case(label: str, wanted: Expected, best: list[int], part: str) -> Case:
    """part: "slowest", "fewest" or "order"."""
    arguments = {"topology": topologies.as_arguments(wanted) | {"given": "Topology"}}
    numbers = sorted(best)
    backwards = [best[0], *reversed(best[1:])]
    traits = frozenset(["gap"] if numbers != list(range(len(best))) else [])

    def judge(got: Any) -> None:
        if not isinstance(got, list) or sorted(got, key=str) != sorted(numbers, key=str):
            raise CheckFailed(
                f"returned {shown(got)}, expected every one of the numbers {numbers} once",
                cause="GPU numbers are those of the names" if traits else None,
            )
        if part == "order":
            suspects = [(backwards, "of a ring's two directions the smaller sequence counts")]
            if len(best) <= 8 and got != best and got == exhaustive_ring(_bonds_alike(wanted)):
                suspects.append((got, BONDS_COUNT))
            expect_same(got, best, "the ring", suspects)
            return
        (slowest, count), (right, fewest) = quality(got, wanted), quality(best, wanted)
        kinds = {speed(kind): kind for kind in wanted.links.values() if kind != "X"}
        if slowest != right:
            raise CheckFailed(
                f"the ring {got} has a link {kinds[slowest]}, expected none slower than "
                f"{kinds[right]}, as in {best}",
                cause=_ring_cause(got, best, wanted),
            )
        if part == "fewest" and count != fewest:
            raise CheckFailed(
                f"the ring {got} has {count} links {kinds[slowest]}, expected {fewest}, as in "
                f"{best}",
                cause="among rings with the same slowest link, the one with the fewest such wins",
            )

    return Case(label, arguments, judge, traits=traits)


BONDS_COUNT = "the number of bonded NVLinks counts: NV2 is faster than NV1"


def _ring_cause(got: list[int], best: list[int], wanted: Expected) -> str | None:
    """Why the ring has too slow a link, where the ring shows it. For up to 8 GPUs."""
    if got == exhaustive_ring(_bonds_alike(wanted)):
        return BONDS_COUNT
    speeds = [speed(wanted.links[f"GPU{a}", f"GPU{b}"]) for a, b in itertools.pairwise(got)]
    if min(speeds) >= quality(best, wanted)[0]:
        return "the ring closes from the last GPU to the first: that link counts, too"
    greedy, left = [min(got)], sorted(got)[1:]
    while left:
        at = greedy[-1]
        greedy.append(max(left, key=lambda gpu: speed(wanted.links[f"GPU{at}", f"GPU{gpu}"])))
        left.remove(greedy[-1])
    if got == greedy:
        return "a greedy walk takes the best link at hand and is left with a bad one"
    return None


def _bonds_alike(wanted: Expected) -> Expected:
    """The same machine with a single NVLink wherever there are several."""
    kinds = {pair: "NV1" if kind.startswith("NV") else kind for pair, kind in wanted.links.items()}
    return replace(wanted, links=kinds)


def renumbered(wanted: Expected, numbers: Sequence[int]) -> Expected:
    """The same machine with GPU i called GPU numbers[i]."""
    name = {f"GPU{i}": f"GPU{number}" for i, number in enumerate(numbers)}
    order = sorted(name.values(), key=lambda gpu: int(gpu[3:]))
    links = {(name.get(a, a), name.get(b, b)): kind for (a, b), kind in wanted.links.items()}
    return replace(
        wanted,
        gpus=order,
        links=links,
        cpu_affinity={name[gpu]: cores for gpu, cores in wanted.cpu_affinity.items()},
        numa_affinity={name[gpu]: cores for gpu, cores in wanted.numa_affinity.items()},
    )
