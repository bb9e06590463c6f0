"""The checks of assignment 0 about links, and about what an all-reduce costs."""

from __future__ import annotations

import random

from grader.checks import a0_costs as costs
from grader.checks import a0_links as links
from grader.checks.a0_cases import refusals, run
from grader.checks.framework import check
from grader.checks.world import SimulatedCluster as Cluster

GB = 10**9


@check("a0.pcie_bandwidth", 2, "gives generations 1 and 2, with 8b/10b")
def test_pcie_old(cluster: Cluster) -> None:
    run(cluster, "a0.pcie_bandwidth", links.pcie_cases([1, 2]))


@check("a0.pcie_bandwidth", 2.5, "gives generations 3 to 5, with 128b/130b")
def test_pcie_middle(cluster: Cluster) -> None:
    run(cluster, "a0.pcie_bandwidth", links.pcie_cases([3, 4, 5]))


@check("a0.pcie_bandwidth", 2, "gives generations 6 and 7, with FLIT")
def test_pcie_new(cluster: Cluster) -> None:
    run(cluster, "a0.pcie_bandwidth", links.pcie_cases([6, 7]))


@check("a0.pcie_bandwidth", 1.5, "refuses generations and widths that there are not")
def test_pcie_refusals(cluster: Cluster) -> None:
    right = {"generation": 4, "lanes": 8}
    wrong = refusals(generation=(right, [0, 8, -1]), lanes=(right, [0, 3, 32, 12]))
    run(cluster, "a0.pcie_bandwidth", wrong)


@check("a0.nvlink_bandwidth", 2, "gives the GPU's full set of every generation")
def test_nvlink_full(cluster: Cluster) -> None:
    run(cluster, "a0.nvlink_bandwidth", links.nvlink_cases(some=False))


@check("a0.nvlink_bandwidth", 1, "gives some of the links")
def test_nvlink_some(cluster: Cluster) -> None:
    run(cluster, "a0.nvlink_bandwidth", links.nvlink_cases(some=True))


@check("a0.nvlink_bandwidth", 1, "refuses generations and links that there are not")
def test_nvlink_refusals(cluster: Cluster) -> None:
    wrong = refusals(
        generation=({"links": None}, [0, 6]),
        links=({"generation": 3}, [0, 13, -1]),
    )
    run(cluster, "a0.nvlink_bandwidth", wrong)


@check("a0.path_time", 2.5, "stores and forwards a whole message")
def test_path_whole(cluster: Cluster) -> None:
    cases = [links.path_case(name, n, hops, None) for name, hops in links.PATHS for n in (1, GB)]
    run(cluster, "a0.path_time", cases)


@check("a0.path_time", 3, "lets chunks follow each other hop by hop")
def test_path_chunks(cluster: Cluster) -> None:
    cases = [
        links.path_case(name, 1 << 22, hops, chunk)
        for name, hops in links.PATHS
        for chunk in (1 << 12, 1 << 16, 1 << 21)
    ]
    run(cluster, "a0.path_time", cases)


@check("a0.path_time", 2.5, "has a shorter last chunk, and hops of any speed")
def test_path_rest(cluster: Cluster, dice: random.Random) -> None:
    cases = [
        links.path_case(name, nbytes, hops, chunk)
        for name, hops in links.PATHS
        for nbytes, chunk in ((1_000_000, 4096), (10_001, 10_000), (4096 * 3 - 1, 4096))
    ]
    for number in range(20):
        hops = [(dice.uniform(0, 1e-5), dice.uniform(1e9, 1e11)) for _ in range(dice.randint(1, 5))]
        size = dice.randint(1, 10**7)
        cases.append(
            links.path_case(f"path {number}", size, hops, dice.randint(size // 99 + 1, size))
        )
    run(cluster, "a0.path_time", cases)


@check("a0.path_time", 1, "knows empty messages, no hops, and chunks beyond the message")
def test_path_edges(cluster: Cluster) -> None:
    cases = []
    for name, hops in (*links.PATHS[:3], ("no hops", [])):
        for nbytes, chunk in ((0, None), (0, 1024), (5000, 5000), (5000, 1 << 20), (5000, None)):
            cases.append(links.path_case(name, nbytes, hops, chunk))
    run(cluster, "a0.path_time", cases)


@check("a0.path_time", 1, "refuses sizes that there are not")
def test_path_refusals(cluster: Cluster) -> None:
    hop = {"given": "Link", "latency": 1e-6, "bandwidth": 1e9}
    right = {"nbytes": 100, "hops": [hop], "chunk_bytes": 10}
    wrong = refusals(nbytes=(right, [-1]), chunk_bytes=(right, [0, -5]))
    run(cluster, "a0.path_time", wrong)


SIZES = (1, 1500, 1 << 20, 256 * 10**6 + 7)


@check("a0.message_time", 3, "tells the time over every transport")
def test_message_seconds(cluster: Cluster) -> None:
    cases = [links.message_case(t, n, "seconds") for t in links.TRANSPORTS for n in SIZES]
    run(cluster, "a0.message_time", cases)


@check("a0.message_time", 3, "tells the CPU seconds over every transport")
def test_message_cpu(cluster: Cluster) -> None:
    cases = [links.message_case(t, n, "cpu_seconds") for t in links.TRANSPORTS for n in SIZES]
    run(cluster, "a0.message_time", cases)


@check("a0.message_time", 1.5, "counts packets: whole ones, the last, and that of an empty message")
def test_message_packets(cluster: Cluster) -> None:
    cases = [
        links.message_case(name, nbytes, field)
        for name in ("kernel TCP", "TCP with jumbo frames", "zero copy through the kernel")
        for nbytes in (0, 1499, 1500, 1501, 9000, 9001, 13_500)
        for field in ("seconds", "cpu_seconds")
    ]
    run(cluster, "a0.message_time", cases)


@check("a0.message_time", 0.5, "refuses sizes that there are not")
def test_message_refusals(cluster: Cluster) -> None:
    right = links.message_case("RoCE", 1, "seconds").arguments
    run(cluster, "a0.message_time", refusals(nbytes=(right, [-1])))


# all_reduce_time --------------------------------------------------------------------------------


def all_reduce(cluster: Cluster, *algorithms: str) -> None:
    cases = [
        costs.cost_case(algorithm, ranks, nbytes)
        for algorithm in algorithms
        for ranks in costs.RANKS
        for nbytes in (0, 1 << 10, 1 << 30)
    ]
    run(cluster, "a0.all_reduce_time", cases)


@check("a0.all_reduce_time", 1.5, "knows pairwise and parameter server")
def test_cost_naive(cluster: Cluster) -> None:
    all_reduce(cluster, "pairwise", "parameter_server")


@check("a0.all_reduce_time", 1.5, "knows the ring")
def test_cost_ring(cluster: Cluster) -> None:
    all_reduce(cluster, "ring")


@check("a0.all_reduce_time", 1.5, "knows recursive doubling")
def test_cost_doubling(cluster: Cluster) -> None:
    all_reduce(cluster, "recursive_doubling")


@check("a0.all_reduce_time", 1.5, "knows halving and doubling")
def test_cost_halving(cluster: Cluster) -> None:
    all_reduce(cluster, "halving_doubling")


@check("a0.all_reduce_time", 1, "knows the binomial tree")
def test_cost_tree(cluster: Cluster) -> None:
    all_reduce(cluster, "binomial_tree")


@check("a0.all_reduce_time", 1, "knows reduction in the network")
def test_cost_network(cluster: Cluster) -> None:
    all_reduce(cluster, "in_network")


@check("a0.all_reduce_time", 1.5, "counts the time of adding")
def test_cost_gamma(cluster: Cluster) -> None:
    cases = [
        costs.cost_case(algorithm, ranks, 1 << 26, gamma)
        for algorithm in costs.ALGORITHMS
        for ranks in (2, 8, 12, 100)
        for gamma in (0.0, costs.GAMMA)
    ]
    run(cluster, "a0.all_reduce_time", cases)


@check("a0.all_reduce_time", 1.5, "agrees with the simulated cluster's clock to 1 %")
def test_cost_clock(cluster: Cluster) -> None:
    cases = [
        costs.clock_case(algorithm, ranks, nbytes)
        for algorithm in costs.ALGORITHMS
        for ranks in (2, 6, 8, 32)
        for nbytes in (1 << 12, 1 << 28)
    ]
    run(cluster, "a0.all_reduce_time", cases)


@check("a0.all_reduce_time", 1, "costs nothing for one rank, and refuses what there is not")
def test_cost_edges(cluster: Cluster) -> None:
    right = costs.cost_case("ring", 4, 100).arguments
    cases = [costs.cost_case(algorithm, 1, 1 << 20) for algorithm in costs.ALGORITHMS]
    cases += [costs.cost_case("ring", 4, 1 << 20)]
    cases += refusals(algorithm=(right, ["star"]), ranks=(right, [0, -4]), nbytes=(right, [-1]))
    run(cluster, "a0.all_reduce_time", cases)
