"""The checks of assignment 0 about one machine."""

from __future__ import annotations

import random
from collections.abc import Sequence

from grader.checks import a0_machines as machines
from grader.checks import a0_placement as placement
from grader.checks import a0_topologies as topologies
from grader.checks.a0_cases import Case, run
from grader.checks.a0_machines import parse_case
from grader.checks.a0_topologies import Machine, Style
from grader.checks.framework import check
from grader.checks.world import SimulatedCluster as Cluster

SLOW_RING = "all orders are tried: 15! for 16 GPUs. Dynamic programming needs 2¹⁵ × 15² steps"


# parse_topology ---------------------------------------------------------------------------------


def real_machines() -> dict[str, Machine]:
    """By name."""
    return {
        "8 GPUs at an NVSwitch": machines.dgx(),
        "8 GPUs in a cube mesh": machines.cube_mesh(),
        "8 GPUs on PCIe": machines.pcie(),
        "2 GPUs in a virtual machine": machines.virtual(),
        "4 GPUs": machines.dgx(4, "NV4", 0),
    }


@check("a0.parse_topology", 4, "finds the GPUs and the links between devices")
def test_parse_links(cluster: Cluster) -> None:
    cases = [
        parse_case(f"{name}, {how}", machine, Style(columns=columns), "gpus", "links")
        for name, machine in real_machines().items()
        for how, columns in (("tabs", False), ("columns of blanks", True))
    ]
    run(cluster, "a0.parse_topology", cases)


@check("a0.parse_topology", 3, "reads CPU and NUMA affinities, with and without the columns")
def test_parse_affinities(cluster: Cluster, dice: random.Random) -> None:
    parts = ("cpu_affinity", "numa_affinity")
    cases = [
        parse_case(f"{name}, {how}", machine, style, *parts)
        for name, machine in real_machines().items()
        for how, style in (
            ("tabs", Style()),
            ("columns of blanks", Style(columns=True)),
            ("GPU NUMA ID", Style(numa_id=True)),
            ("no NUMA column", Style(numa=False)),
            ("no affinities", Style(numa=False, cpu=False)),
            ("blanks after commas", Style(loose_lists=True)),
        )
    ]
    cases += [
        parse_case(f"machine {number}", topologies.random_machine(dice), Style(), *parts)
        for number in range(8)
    ]
    run(cluster, "a0.parse_topology", cases)


@check("a0.parse_topology", 3, "reads NICs with and without rows, and their legend")
def test_parse_nics(cluster: Cluster) -> None:
    cases = [
        parse_case(f"{name}, {how}", machine, style, "gpus", "nics", "links", "nic_names")
        for name, machine in (
            ("an NVSwitch", machines.dgx()),
            ("a cube mesh", machines.cube_mesh()),
            ("11 NICs", machines.dgx(nics=11)),
            ("no NIC", machines.pcie()),
        )
        for how, style in (
            ("with rows", Style()),
            ("without rows", Style(nic_rows=False)),
            ("old names", Style(old_names=True, numa=False)),
            ("old names without rows", Style(old_names=True, nic_rows=False)),
            ("no legend", Style(legend=False)),
        )
    ]
    run(cluster, "a0.parse_topology", cases)


@check("a0.parse_topology", 2, "overlooks colours, line ends and what stands around the matrix")
def test_parse_surroundings(cluster: Cluster) -> None:
    cases = [
        parse_case(f"{name}, {how}", machine, style)
        for name, machine in (("dgx", machines.dgx()), ("pcie", machines.pcie()))
        for how, style in machines.styles().items()
    ]
    run(cluster, "a0.parse_topology", cases)


@check("a0.parse_topology", 2, "puts wrapped and glued lines right")
def test_parse_lines(cluster: Cluster) -> None:
    cases = []
    for name, machine in (("dgx", machines.dgx()), ("mesh", machines.cube_mesh())):
        cases.append(parse_case(f"{name}, one row a line", machine, Style()))
        for width in (40, 72, 80):
            for columns in (False, True):
                style = Style(wrap=width, columns=columns)
                cases.append(parse_case(f"{name}, wrapped after {width}", machine, style))
        for glue in ((3,), (1, 2), (8,), (1,)):
            cases.append(parse_case(f"{name}, line {glue} glued on", machine, Style(glue=glue)))
        cases.append(parse_case(f"{name}, all glued", machine, Style(glue=tuple(range(1, 9)))))
    run(cluster, "a0.parse_topology", cases)


@check("a0.parse_topology", 1, "reads 1 GPU and 16 GPUs")
def test_parse_sizes(cluster: Cluster) -> None:
    cases = [
        parse_case(f"{name}, {how}", machine, style)
        for name, machine in (
            ("8 GPUs", machines.pcie()),
            ("1 GPU", machines.workstation()),
            ("16 GPUs", machines.dgx(16, "NV6", 8)),
            ("16 GPUs on PCIe", machines.pcie(16)),
        )
        for how, style in (("tabs", Style()), ("columns", Style(columns=True)))
    ]
    run(cluster, "a0.parse_topology", cases)


@check("a0.parse_topology", 1.5, "reads any machine in any mess")
def test_parse_anything(cluster: Cluster, dice: random.Random) -> None:
    cases = []
    for number in range(60):
        machine = topologies.random_machine(dice)
        style = topologies.random_style(dice, machine)
        cases.append(parse_case(f"text {number}", machine, style))
    run(cluster, "a0.parse_topology", cases)


@check("a0.parse_topology", 3.5, "names the line where a text is cut off or no matrix")
def test_parse_cuts(cluster: Cluster) -> None:
    run(cluster, "a0.parse_topology", machines.cut_cases())


# bind_ranks and best_ring -----------------------------------------------------------------------


def two_near(pairs: Sequence[Sequence[int]]) -> Machine:
    """A GPU for each pair of near NICs, and 4 NICs."""
    gpus = len(pairs)

    def between(a: int, b: int) -> str:
        return "PIX" if a < gpus <= b and b - gpus in pairs[a] else "SYS"

    return Machine(gpus, between, ["0-7"] * gpus, ["0"] * gpus, 4)


def placed(part: str) -> list[Case]:
    """Cases of bind_ranks."""
    uneven = Machine(8, machines.pcie().between, ["0-12"] * 3 + ["13-23"] * 5, ["0"] * 8)
    apart = Machine(
        6, machines.pcie(6).between, ["0-7", "8-15"] * 3, ["0", "1"] * 3, 2
    )  # fmt: skip
    few = Machine(4, machines.pcie(4).between, ["0-1"] * 3 + ["2"], ["0"] * 4)
    # GPU0 may use either NIC, GPU1 only NIC0: whoever serves GPU0 first with NIC0 shares it.
    choice = Machine(
        2, lambda a, b: "SYS" if (a, b) == (1, 3) else "PIX", ["0-3", "4-7"], ["0", "1"], 2
    )  # fmt: skip
    chain = Machine(
        4,
        lambda a, b: "NV2" if b < 4 else ("PIX" if b - 4 in (a - 1, a) else "SYS"),
        ["0-7"] * 4,
        ["0"] * 4,
        4,
    )
    # Everybody has a choice of two, and whoever takes the third rank's last free one shares it: no
    # order of ranks tells, only moving one of the others aside. Once for each NIC of a pair.
    aside = [
        two_near(((0, 1), (2, 3), (0, 2))),
        two_near(((0, 1), (2, 3), (1, 3))),
        two_near(((0, 2), (0, 1), (2, 3))),
    ]
    known: list[tuple[str, Machine, Sequence[int]]] = [
        ("NVSwitch", machines.dgx(), (1, 3, 8)),
        ("NVSwitch, 4 NICs", machines.dgx(nics=4), (8, 5)),
        ("cube mesh", machines.cube_mesh(), (8, 4)),
        ("PCIe", machines.pcie(), (8, 6)),
        ("virtual machine", machines.virtual(), (2,)),
        ("workstation", machines.workstation(), (1,)),
        ("uneven cores", uneven, (8, 4)),
        ("affinities in turn", apart, (6, 3)),
        ("fewer cores than ranks", few, (4,)),
        ("a choice of NICs", choice, (2,)),
        ("a chain of choices", chain, (4, 3)),
        *((f"pairs of NICs, {number}", machine, (3,)) for number, machine in enumerate(aside)),
        ("16 GPUs", machines.dgx(16, "NV6", 8), (16,)),
    ]
    return [
        placement.bind_case(name, machine, ranks, part)
        for name, machine, counts in known
        for ranks in counts
    ]


@check("a0.bind_ranks", 1.5, "gives local rank r the r-th GPU")
def test_bind_gpus(cluster: Cluster) -> None:
    run(cluster, "a0.bind_ranks", placed("gpu"))


@check("a0.bind_ranks", 3.5, "shares the cores near the GPUs evenly")
def test_bind_cores(cluster: Cluster) -> None:
    run(cluster, "a0.bind_ranks", placed("cores"))


@check("a0.bind_ranks", 2, "gives every rank a nearest NIC")
def test_bind_near(cluster: Cluster) -> None:
    run(cluster, "a0.bind_ranks", placed("near"))


@check("a0.bind_ranks", 2, "spreads the ranks over their nearest NICs")
def test_bind_even(cluster: Cluster) -> None:
    run(cluster, "a0.bind_ranks", placed("even"))


@check("a0.bind_ranks", 1, "refuses more ranks than GPUs, naming both numbers")
def test_bind_refusals(cluster: Cluster) -> None:
    right = placement.bind_case("", machines.pcie(4), 4, "gpu").arguments
    cases = [
        Case(f"{ranks} ranks, 4 GPUs", right | {"local_world_size": ranks},
             refused=[rf"(?<!\d){ranks}(?!\d)", r"(?<!\d)4(?!\d)"])
        for ranks in (5, 8, 0, -1)
    ]  # fmt: skip
    run(cluster, "a0.bind_ranks", cases)


def rings(part: str, dice: random.Random) -> list[Case]:
    """Cases of best_ring whose answer is found by trying all rings."""
    chosen = {name: topologies.expected(each) for name, each in real_machines().items()}
    del chosen["8 GPUs at an NVSwitch"]
    for number in range(14):
        machine = topologies.random_machine(dice, dice.choice([3, 4, 5, 6, 7]))
        chosen[f"machine {number}"] = topologies.expected(machine)
    wanted = topologies.expected(topologies.random_machine(dice, 5))
    chosen["GPUs 2, 3, 5, 8, 10"] = placement.renumbered(wanted, [8, 2, 10, 3, 5])
    return [
        placement.ring_case(name, each, placement.exhaustive_ring(each), part)
        for name, each in chosen.items()
    ]


@check("a0.best_ring", 4, "keeps the slowest link as fast as can be")
def test_ring_slowest(cluster: Cluster, dice: random.Random) -> None:
    run(cluster, "a0.best_ring", rings("slowest", dice), slow=SLOW_RING)


@check("a0.best_ring", 3, "has the fewest links of the slowest kind")
def test_ring_fewest(cluster: Cluster, dice: random.Random) -> None:
    run(cluster, "a0.best_ring", rings("fewest", dice), slow=SLOW_RING)


@check("a0.best_ring", 2, "gives the smallest sequence of the best rings")
def test_ring_order(cluster: Cluster, dice: random.Random) -> None:
    run(cluster, "a0.best_ring", rings("order", dice), slow=SLOW_RING)


@check("a0.best_ring", 2, "finds the ring of 16 GPUs in seconds")
def test_ring_large(cluster: Cluster, dice: random.Random) -> None:
    others = list(range(1, 16))
    dice.shuffle(others)
    planted = [0, *others]
    if planted[1] > planted[-1]:
        planted = [0, *reversed(others)]
    on_ring = {frozenset(pair) for pair in zip(planted, [*others, 0], strict=False)}
    on_ring = {frozenset((planted[i - 1], planted[i])) for i in range(16)}
    hidden = Machine(
        16, lambda a, b: "NV2" if {a, b} in on_ring else "PHB", ["N/A"] * 16, ["N/A"] * 16
    )  # fmt: skip
    boards = Machine(
        16, lambda a, b: "NV6" if a // 8 == b // 8 else "SYS", ["N/A"] * 16, ["N/A"] * 16
    )
    cases = [
        placement.ring_case("one ring of NV2", topologies.expected(hidden), planted, "order"),
        placement.ring_case("all alike", topologies.expected(machines.dgx(16, nics=0)),
                            list(range(16)), "order"),
        placement.ring_case("two boards", topologies.expected(boards), list(range(16)), "order"),
    ]  # fmt: skip
    run(cluster, "a0.best_ring", cases, slow=SLOW_RING)


@check("a0.best_ring", 1, "knows rings of 1 and 2 GPUs")
def test_ring_small(cluster: Cluster) -> None:
    one, two = topologies.expected(machines.workstation()), topologies.expected(machines.virtual())
    cases = [
        placement.ring_case("1 GPU", one, [0], "order"),
        placement.ring_case("2 GPUs", two, [0, 1], "order"),
        placement.ring_case("GPU4 and GPU7", placement.renumbered(two, [7, 4]), [4, 7], "order"),
    ]
    run(cluster, "a0.best_ring", cases)
